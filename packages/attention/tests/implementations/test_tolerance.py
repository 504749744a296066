"""The tolerance lets honest rounding pass and stops everything that is larger."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from torchyard_attention.cases import CASES
from torchyard_attention.contract import AttentionResult
from torchyard_attention.reference import reference_backward, reference_forward
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import GradientRuler, Ruler, report

NAMES = ("plain", "bfloat16-window-alibi", "float16-causal", "float64", "lengths-1-1")


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_passes(name: str) -> None:
    call = CASES[name].call()

    assert not report(Ruler(call).compare(reference_forward(call)))


@pytest.mark.parametrize("name", NAMES)
def test_one_wrong_element_fails(name: str) -> None:
    call = CASES[name].call()
    result = reference_forward(call)
    eps = torch.finfo(call.query.dtype).eps
    result.out[-1, -1, -1, -1] += 200 * eps * result.out.abs().max()

    assert report(Ruler(call).compare(result)).startswith("out: ")


def test_a_bias_too_small_for_the_greatest_error_fails_by_the_root_mean_square() -> None:
    call = CASES["bfloat16-causal"].call()
    result = reference_forward(call)
    ruler = Ruler(call)
    allowed = ruler.compare(result)[0]
    shifted = replace(result, out=result.out + 0.8 * allowed.greatest_bound)

    (error, _) = ruler.compare(shifted)

    assert error.greatest <= 1.2 * error.greatest_bound
    assert error.rms > error.rms_bound


def test_an_lse_in_powers_of_two_fails() -> None:
    call = CASES["bfloat16"].call()
    result = reference_forward(call)
    assert result.lse is not None

    assert "lse: " in report(Ruler(call).compare(replace(result, lse=result.lse / 0.6931)))


def test_a_ruler_of_inputs_with_nan_lets_nothing_pass() -> None:
    call = CASES["plain"].call()
    query = call.query.clone()
    query[0, 0, 0] = torch.nan

    assert report(Ruler(replace(call, query=query)).compare(reference_forward(call)))


def test_a_row_without_keys_must_be_zero() -> None:
    call = make_call(batch=1, q_heads=1, q_length=2, kv_length=0, head_dim=16)
    result = reference_forward(call)
    ruler = Ruler(call)
    assert not report(ruler.compare(result))

    result.out[..., 0] = 1e-9

    assert ruler.compare(result)[0].ratio == math.inf


def test_nan_and_infinities_must_be_where_the_reference_has_them() -> None:
    call = CASES["mask-empty_rows"].call()
    result = reference_forward(call)
    assert result.lse is not None

    problems = report(Ruler(call).compare(replace(result, lse=result.lse.nan_to_num(neginf=-1e9))))

    assert "NaN or infinities differ" in problems


def test_an_output_that_was_not_asked_for_is_an_error() -> None:
    call = CASES["without-lse"].call()
    out = reference_forward(call).out

    with pytest.raises(ValueError, match="lse: asked for: False, returned: True"):
        Ruler(call).compare(AttentionResult(out, torch.zeros(2, 4, 64)))


def test_a_shape_that_differs_is_an_error() -> None:
    call = CASES["plain"].call()
    result = reference_forward(call)

    with pytest.raises(ValueError, match=r"out: expected shape \[2, 4, 64, 32\], got \[2, 4, 64"):
        Ruler(call).compare(replace(result, out=result.out[..., :31]))


def test_a_gradient_that_forgets_the_scale_fails() -> None:
    call = CASES["float16-causal"].call()
    result = reference_forward(call)
    assert result.lse is not None
    gradients = reference_backward(call, result.out, result.lse, result.out, None)
    ruler = GradientRuler(call, result.out)

    assert not report(ruler.compare(gradients))
    problems = report(ruler.compare(replace(gradients, query=gradients.query / call.scale)))
    assert problems.startswith("grad_query: ")
