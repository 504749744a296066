"""What a row does not see never reaches it, NaN and infinities included, in every kind of tile."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_attention.cases import MASKS
from torchyard_attention.contract import AttentionCall, ScoreMod
from torchyard_attention.reference import reference_backward, reference_forward
from torchyard_attention.testing import make_call, traced_score_mod
from torchyard_attention.visibility import dense_visibility
from torchyard_triton.attention import Tiles, backward, forward
from torchyard_triton.attention._forward import ForwardPasses

_TILES = Tiles(rows=32, keys=16)
_LENGTH = 50
# Kinds of tiles that hold a bad value, with mask and blocks. Blocks of 16 are hidden, partial and
# whole; a partial block of 64 has tiles that are seen in part and not at all.
_KINDS = {
    "blocks": ("narrow", (16, 16)),
    "tiles-of-a-block": ("narrow", (64, 64)),
    "odd-blocks": ("narrow", (20, 13)),
    "heads": ("per_head", (32, 32)),
    "whole-and-hidden": ("per_batch_and_head", (16, 16)),
    "rows-that-see-nothing": ("empty_rows", (32, 16)),
}
_PLACES = (5, _LENGTH - 1)
_POISONS = (math.nan, math.inf, -math.inf)


def _narrow() -> Tensor:
    """Return a causal window of 18, under which a block of 16 on the diagonal's left is whole."""
    distance = torch.arange(_LENGTH)[:, None] - torch.arange(_LENGTH)
    return ((distance >= 0) & (distance < 18))[None, None]


def _call(kind: str, *, score: bool = False) -> AttentionCall:
    name, blocks = _KINDS[kind]
    sizes = {"batch": 1, "q_heads": 2, "kv_heads": 1, "q_length": _LENGTH, "head_dim": 16}
    visible = _narrow() if name == "narrow" else MASKS[name](1, 2, _LENGTH, _LENGTH)
    slopes = torch.tensor([0.5, 0.25])
    return make_call(
        **sizes,
        visible=visible,
        block_size=blocks,
        score_mod=(lambda s, b, h, q, k: s + slopes[h] * (k - q)) if score else None,
        max_scores=True,
    )


def _poisoned(tensor: Tensor, poison: float, *, whole: bool = False) -> Tensor:
    """Return a tensor with bad rows, one of them at the end."""
    tensor = tensor.clone()
    for place in _PLACES:
        tensor[:, :, place, slice(None) if whole else 3] = poison
    return tensor


def _assert_same(name: str, got: Tensor, wanted: Tensor) -> bool:
    """Compare; return whether anything is finite, so that NaN everywhere is no comparison."""
    for poison in _POISONS:
        one, other = (t.isnan() if math.isnan(poison) else t == poison for t in (got, wanted))
        assert torch.equal(one, other), f"{name}: {poison} at {int(one.sum())}, not {other.sum()}"
    finite = wanted.isfinite()
    torch.testing.assert_close(got[finite], wanted[finite], rtol=2e-5, atol=2e-5)
    return bool(finite.any())


def _check_forward(call: AttentionCall, mask_mod: ScoreMod | None, given: AttentionCall) -> None:
    got = forward(given, mask_mod=mask_mod, tiles=_TILES)
    wanted = reference_forward(call)
    names = ("out", "lse", "max_scores")
    compared = [_assert_same(name, getattr(got, name), getattr(wanted, name)) for name in names]
    assert any(compared)


def _check_backward(
    call: AttentionCall, mask_mod: ScoreMod | None, given: AttentionCall, grad_out: Tensor
) -> None:
    result = reference_forward(call)
    assert result.lse is not None
    rest = (result.out, result.lse, grad_out, None)
    got = backward(given, *rest, mask_mod=mask_mod, tiles=_TILES)
    wanted = reference_backward(call, *rest)
    # Whether a sum of infinities is one or NaN depends on how it is put together.
    finite = [
        (
            name,
            *(t.where(t.isfinite(), math.nan) for t in (getattr(got, name), getattr(wanted, name))),
        )
        for name in ("query", "key", "value")
    ]
    compared = [_assert_same(*pair) for pair in finite]
    assert any(compared)


def _grad_out(call: AttentionCall) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn((*call.query.shape[:3], call.value.shape[3]), generator=generator)


_TARGETS = ("key", "value", "query")
# Each kind, each target and each value once with NaN in the keys of odd blocks or beside them.
_ODD = ("odd-blocks", "key", math.nan)
_ALL = [(kind, target, poison) for kind in _KINDS for target in _TARGETS for poison in _POISONS]


def _cases() -> list[Any]:
    """Return every case, those marked as long that differ from the first in more than one way."""
    found = []
    for case in _ALL:
        apart = sum(map(operator.ne, map(str, case), map(str, _ODD)))
        found.append(pytest.param(*case, marks=[pytest.mark.sweep] if apart > 1 else []))
    return found


@pytest.mark.parametrize(
    ("kind", "target", "poison"),
    _cases(),
)
def test_forward(kind: str, target: str, poison: float) -> None:
    call = _call(kind, score=kind == "heads")
    call = replace(call, **{target: _poisoned(getattr(call, target), poison)})
    assert not dense_visibility(call.mask, _LENGTH, _LENGTH).all()  # type: ignore[arg-type]
    _check_forward(call, None, call)


@pytest.mark.parametrize("target", [*_TARGETS, "grad_out"])
@pytest.mark.parametrize(
    ("kind", "poison"),
    [
        ("odd-blocks", math.nan),
        *(
            pytest.param(kind, poison, marks=pytest.mark.sweep)
            for kind in _KINDS
            for poison in _POISONS
            if (kind, str(poison)) != ("odd-blocks", "nan")
        ),
    ],
)
def test_backward(kind: str, poison: float, target: str) -> None:
    call = _call(kind, score=kind == "heads")
    grad_out = _grad_out(call)
    if target == "grad_out":
        grad_out = _poisoned(grad_out, poison)
    else:
        call = replace(call, **{target: _poisoned(getattr(call, target), poison)})
    _check_backward(call, None, call, grad_out)


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["key", "value"])
@pytest.mark.parametrize("lists", [True, False])
def test_masks_of_programs(lists: bool, target: str) -> None:
    """Visibility by a program, with lists of blocks and without."""
    visible = _narrow()
    call = make_call(batch=1, q_heads=2, q_length=_LENGTH, head_dim=16, visible=visible)
    call = replace(call, **{target: _poisoned(getattr(call, target), math.nan, whole=True)})
    mod = traced_score_mod(lambda s, b, h, q, k: (q >= k) & (q - k < 18))
    given = call if lists else replace(call, mask=None)
    _check_forward(replace(call, max_scores=True), mod, replace(given, max_scores=True))
    _check_backward(call, mod, given, _grad_out(call))


def test_the_first_launch_alone_is_not_enough() -> None:
    call = _call("blocks")
    call = replace(call, value=_poisoned(call.value, math.nan))
    passes = ForwardPasses(call, None, None, _TILES)
    passes.launch().run()
    wanted = reference_forward(call).out.isnan()
    assert passes.out.isnan().sum() > wanted.sum()
    passes.exact_launch().run()
    assert torch.equal(passes.out.isnan(), wanted)


def test_half() -> None:
    visible = MASKS["random"](1, 2, _LENGTH, _LENGTH)
    sizes = {"batch": 1, "q_heads": 2, "q_length": _LENGTH, "head_dim": 32}
    call = make_call(**sizes, visible=visible, dtype=torch.float16, block_size=(32, 32))
    clean = forward(call, tiles=_TILES)
    assert call.mask is not None
    sees = dense_visibility(call.mask, _LENGTH, _LENGTH)[..., _PLACES]
    call = replace(call, value=_poisoned(call.value, math.nan, whole=True))
    got = forward(call, tiles=_TILES)
    touched = sees.any(dim=-1).expand(got.out.shape[:3])
    assert torch.equal(got.out.isnan().all(dim=-1), touched)
    torch.testing.assert_close(got.out[~touched], clean.out[~touched], rtol=2e-3, atol=2e-3)


def test_rows_without_bad_values_keep_their_bits() -> None:
    call = _call("tiles-of-a-block")
    clean = forward(call, tiles=_TILES)
    got = forward(replace(call, value=_poisoned(call.value, math.nan)), tiles=_TILES)
    # Columns other than the bad one are computed by the first pass, or again as exactly.
    torch.testing.assert_close(got.out[..., 4:], clean.out[..., 4:], rtol=1e-6, atol=1e-6)
    assert torch.equal(got.lse, clean.lse)  # type: ignore[arg-type]
