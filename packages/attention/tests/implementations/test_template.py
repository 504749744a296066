"""Programs that torch's templates inline give what int64 indices and torch's rounding give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_attention.cases import CASES, MASK_MODS, Case
from torchyard_attention.implementations import flex
from torchyard_attention.implementations._template import template_of
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call, traced_mask_mod


def _overflows(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Any:
    return score + ((q + 60000) * (k + 50000)) % 7


@pytest.mark.parametrize(
    ("score_mod", "wide"),
    [(_overflows, True), (lambda score, b, h, q, k: score + (q - k) * 0.5, False)],
)
def test_indices_are_int64_where_int32_would_overflow(
    score_mod: Callable[..., Any], wide: bool
) -> None:
    assert template_of(make_call(score_mod=score_mod, lse=False))[0].wide == wide


@pytest.mark.sweep
def test_a_product_of_indices_beyond_int32_is_right() -> None:
    call = make_call(score_mod=_overflows, lse=False)

    out = flex.load()(call).out

    torch.testing.assert_close(out, reference_forward(call).out)


@pytest.mark.parametrize("name", MASK_MODS)
def test_a_mask_that_was_recorded_is_a_program(name: str) -> None:
    recorded, _ = template_of(Case(name, {"q_length": 150}, name, recorded=True).call())
    assert recorded.mask
    # An index that is divided by a captured int64.
    assert recorded.wide_mask == (name == "documents")
    # Bits alone are read as bits.
    assert not template_of(CASES[f"mask-{name}"].call())[0].mask


@pytest.mark.parametrize(
    ("mask_mod", "program", "wide"),
    [
        # A compiler may fuse the product and the sum, which rounds once.
        (lambda b, h, q, k: q * 0.1 + k * 0.3 > 5.0, False, False),
        (lambda b, h, q, k: (q + 60000) * (k + 50000) % 2 == 0, True, True),
        (lambda b, h, q, k: q - k < 9, True, False),
    ],
)
def test_a_mask_is_a_program_where_rounding_changes_nothing(
    mask_mod: Callable[..., Any], program: bool, wide: bool
) -> None:
    mask = traced_mask_mod(mask_mod, (1, 1, 64, 64), (128, 128), "cpu")
    template, _ = template_of(replace(make_call(lse=False), mask=mask))
    assert template.masked
    assert (bool(template.mask), template.wide_mask) == (program, wide)
