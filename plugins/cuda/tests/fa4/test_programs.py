"""Generated functions mean what the programs mean, by torch in the place of CuTe DSL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from packages.attention.tests.score_programs import LENGTH, MASKS, SCORES, random_score
from plugins.cuda.tests.fa4.cute_on_torch import vector
from torchyard_cuda.fa4._program import INPUTS, CutePrograms, auxiliary, lower_mask, lower_score
from torchyard_programs import UnsupportedProgramError, trace

pytestmark = pytest.mark.usefixtures("cute")

_COUNT = 257


def _places() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)

    def among(size: int) -> Tensor:
        return torch.randint(0, size, (_COUNT,), generator=generator)

    return {"b": among(2), "h": among(4), "q": among(LENGTH), "k": among(LENGTH)}


def _traced(function: Callable[..., Any], kind: str) -> tuple[CutePrograms, list[Tensor]]:
    inputs = INPUTS[0 if kind == "score" else 1 :]
    pairs = tuple((i.name, i.dtype if isinstance(i.dtype, torch.dtype) else None) for i in inputs)
    text, captured = trace(function, f"{kind}_mod", pairs, torch.device("cpu"))
    traits = tuple((tensor.dtype, tensor.ndim) for tensor in captured)
    lower = lower_score if kind == "score" else lower_mask
    return lower(text, traits), auxiliary(lower(text, traits), captured)


def _index(tensor: Tensor) -> Tensor:
    return vector(tensor, torch.int32)


@pytest.mark.parametrize("name", SCORES)
def test_score_mods_and_their_gradients(name: str) -> None:
    _check_score(SCORES[name])


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(40))
def test_random_score_mods(seed: int) -> None:
    _check_score(random_score(seed))


def _check_score(function: Callable[..., Any]) -> None:
    lowered, tensors = _traced(function, "score")
    score_mod, gradient = lowered.functions()
    places = _places()
    generator = torch.Generator().manual_seed(5)
    scores, grad = (torch.randn(_COUNT, generator=generator) for _ in range(2))
    indices = [_index(places[name]) for name in "bhqk"]
    keywords = dict(zip(("q_idx", "kv_idx"), indices[2:], strict=True))
    keywords |= {"seqlen_info": None, "aux_tensors": tensors}
    got = score_mod(vector(scores, torch.float32), *indices[:2], **keywords)
    got_gradient = gradient(
        vector(grad, torch.float32), vector(scores, torch.float32), *indices[:2], **keywords
    )
    leaf = scores.clone().requires_grad_()
    # One by one, since the function indexes with single numbers.
    wanted = torch.stack(
        [
            torch.as_tensor(function(leaf[i], *(places[name][i] for name in "bhqk"))).float()
            for i in range(_COUNT)
        ]
    )
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.as_subclass(Tensor), wanted.detach(), rtol=2e-5, atol=2e-5)
    slope = torch.zeros(_COUNT)
    if wanted.requires_grad:
        (slope,) = torch.autograd.grad(wanted, leaf, grad)
    torch.testing.assert_close(got_gradient.as_subclass(Tensor), slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MASKS)
def test_mask_mods(name: str) -> None:
    function = MASKS[name]
    lowered, tensors = _traced(function, "mask")
    (mask_mod,) = lowered.functions()
    places = _places()
    got = mask_mod(*(_index(places[name]) for name in "bhqk"), None, tensors)
    wanted = torch.stack(
        [torch.as_tensor(function(*(places[n][i] for n in "bhqk"))) for i in range(_COUNT)]
    )
    assert got.dtype == torch.bool
    assert torch.equal(got.as_subclass(Tensor), wanted)


def test_elements_that_a_tensor_does_not_have() -> None:
    rows = torch.arange(1.0, 4.0)
    lowered, tensors = _traced(lambda s, b, h, q, k: s + rows[q - 10], "score")
    score_mod, _ = lowered.functions()
    zero = vector([0, 0, 0, 0, 0], torch.int32)
    got = score_mod(
        vector([0.0] * 5, torch.float32),
        *(zero, zero),
        q_idx=vector([6, 7, 10, 12, 13], torch.int32),
        kv_idx=zero,
        seqlen_info=None,
        aux_tensors=tensors,
    )
    wanted = torch.tensor([torch.nan, 1.0, 1.0, 3.0, torch.nan])
    torch.testing.assert_close(got.as_subclass(Tensor), wanted, equal_nan=True)


def test_equal_structure_has_equal_source() -> None:
    first, second = (torch.randn(4) for _ in range(2))
    one, _ = _traced(lambda s, b, h, q, k: s * first[h], "score")
    other, _ = _traced(lambda s, b, h, q, k: s * second[h], "score")
    assert one.source == other.source
    assert one.functions() == other.functions()


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda s, b, h, q, k: torch.lgamma(s), "lgamma of float32"),
        (lambda s, b, h, q, k: torch.fmod(s, 2.0), "fmod of float32"),
        (lambda s, b, h, q, k: (s.double() * 2).float(), "float64"),
        (lambda s, b, h, q, k: s + (q << 2), "shl"),
    ],
)
def test_what_has_no_form_is_named(function: Callable[..., Any], named: str) -> None:
    with pytest.raises(UnsupportedProgramError, match=named):
        _traced(function, "score")
