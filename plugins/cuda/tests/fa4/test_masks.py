"""Block masks by FlashAttention-4: the program within listed blocks is what the bits show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from plugins.cuda.tests.fa4.fa4_on_torch import DOCUMENTED
from torchyard_attention.contract import AttentionCall, MaskBlocks
from torchyard_attention.testing import make_call, traced_mask_mod
from torchyard_attention.tolerance import GradientRuler, Ruler, report
from torchyard_attention.visibility import dense_visibility
from torchyard_cuda.fa4._adapter import Fa4Backward, Fa4Forward
from torchyard_programs import UnsupportedProgramError

pytestmark = pytest.mark.usefixtures("cute")

_ROWS, _KEYS = 12, 21
_IDS: Final = torch.arange(_KEYS) // 5
_ENDS: Final = torch.tensor([19, 8])
_WIDTHS: Final = torch.tensor([2, 30], dtype=torch.int32)
_SHOWN: Final = torch.rand((_ROWS, _KEYS), generator=torch.Generator().manual_seed(1)) < 0.4
_SLOPES: Final = torch.tensor([0.5, 0.1])

_MASKS: Final[dict[str, tuple[Callable[..., Any], int, int]]] = {
    "window": (lambda b, h, q, k: (q - k).abs() < 4, 1, 1),
    "document": (lambda b, h, q, k: (_IDS[q] == _IDS[k]) & (q >= k), 1, 1),
    "of batches": (lambda b, h, q, k: k < _ENDS[b], 2, 1),
    "of heads": (lambda b, h, q, k: (q - k).abs() <= _WIDTHS[h], 1, 2),
    "of both": (lambda b, h, q, k: (k < _ENDS[b]) & (q - k <= _WIDTHS[h]), 2, 2),
    "dense": (lambda b, h, q, k: _SHOWN[q, k], 1, 1),
    "rows that see nothing": (lambda b, h, q, k: (q > 6) & (k < 12), 1, 1),
    "hardly a key": (lambda b, h, q, k: k == 20, 1, 1),
    "everything": (lambda b, h, q, k: k >= 0, 1, 1),
}


def _alibi(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.tanh(score) + _SLOPES[h] * (k - q)


def _masked(name: str, block_size: tuple[int, int] = (8, 8), keys: int = _KEYS) -> MaskBlocks:
    function, batch, heads = _MASKS[name]
    return traced_mask_mod(function, (batch, heads, _ROWS, keys), block_size)


def _call(mask: MaskBlocks, keys: int = _KEYS, score_mod: Any = None) -> AttentionCall:
    # Small, since the stand-in reads captured tensors one element at a time.
    call = make_call(
        q_heads=2,
        kv_heads=1,
        q_length=_ROWS,
        kv_length=keys,
        head_dim=16,
        value_dim=8,
        score_mod=score_mod,
        captured_grad=False,
    )
    return replace(call, mask=mask)


def _check(call: AttentionCall) -> None:
    result = Fa4Forward(DOCUMENTED)(call)
    errors = Ruler(call).compare(result)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    assert result.lse is not None
    grad_out, grad_lse = torch.randn_like(result.out), torch.randn_like(result.lse)
    found = Fa4Backward(DOCUMENTED)(call, result.out, result.lse, grad_out, grad_lse)
    errors = GradientRuler(call, grad_out, grad_lse).compare(found)
    assert all(error.ratio <= 1 for error in errors), report(errors)


@pytest.mark.parametrize("name", _MASKS)
@pytest.mark.parametrize("block_size", [(8, 8), (4, 16)])
def test_values_and_gradients_of_masks(name: str, block_size: tuple[int, int]) -> None:
    _check(_call(_masked(name, block_size)))


@pytest.mark.parametrize("name", ["document", "of both"])
def test_a_mask_and_a_score_mod_capture_tensors_of_their_own(name: str) -> None:
    _check(_call(_masked(name), score_mod=_alibi))


def _turned(counts: Tensor, indices: Tensor) -> Tensor:
    """Return lists from the last block to the first, with anything behind their ends."""
    place = counts[..., None] - 1 - torch.arange(indices.shape[3])
    return torch.where(place >= 0, indices.gather(-1, place.clamp(min=0).long()), 7)


@pytest.mark.parametrize("keys", [16, _KEYS])
def test_lists_in_any_order(keys: int) -> None:
    mask = _masked("everything", keys=keys)
    visible = dense_visibility(mask, _ROWS, keys)
    mask = replace(
        mask,
        kv_indices=_turned(mask.kv_num_blocks, mask.kv_indices),
        full_kv_indices=_turned(mask.full_kv_num_blocks, mask.full_kv_indices),
    )
    # The bits are those of the first order, and read by nothing here.
    call = _call(mask, keys)
    result = Fa4Forward(DOCUMENTED)(call)
    exact = _call(traced_mask_mod(_MASKS["everything"][0], (1, 1, _ROWS, keys), (8, 8)), keys)
    assert torch.equal(dense_visibility(exact.mask, _ROWS, keys), visible)  # type: ignore[arg-type]
    errors = Ruler(exact).compare(result)
    assert all(error.ratio <= 1 for error in errors), report(errors)


def test_lists_without_a_block_have_a_place_in_memory() -> None:
    mask = _masked("everything", keys=16)
    mask = replace(
        mask,
        kv_num_blocks=torch.zeros_like(mask.kv_num_blocks),
        kv_indices=mask.kv_indices[..., :0],
        full_kv_num_blocks=torch.full_like(mask.full_kv_num_blocks, 2),
        full_kv_indices=torch.tensor([0, 1], dtype=torch.int32).expand(1, 1, 2, 2).contiguous(),
    )
    _check(_call(mask, 16))


def test_blocks_that_are_listed_nowhere_stay_hidden_whatever_the_program_says() -> None:
    mask = _masked("everything")
    mask = replace(
        mask,
        kv_num_blocks=torch.zeros_like(mask.kv_num_blocks),
        full_kv_num_blocks=mask.full_kv_num_blocks.clamp(max=1),
        bits=mask.bits[:0],
    )
    assert not dense_visibility(mask, _ROWS, _KEYS)[..., 8:].any()
    _check(_call(mask))


@pytest.mark.parametrize("name", ["document", "rows that see nothing"])
def test_a_program_is_read_and_bits_are_not(name: str) -> None:
    mask = _masked(name)
    wrong = replace(mask, bits=torch.randint_like(mask.bits, 256))
    right, found = (Fa4Forward(DOCUMENTED)(_call(item)) for item in (mask, wrong))
    assert torch.equal(right.out, found.out)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda b, h, q, k: torch.rsqrt(q + 1.0) > 0.2, "add of float32, whose rounding"),
        (lambda b, h, q, k: torch.sin(q) > 0.0, "sin of float32, whose rounding"),
        (lambda b, h, q, k: (q << 1) > k, "shl"),
    ],
)
def test_what_bits_and_a_program_may_show_differently_is_refused(
    function: Callable[..., Any], named: str
) -> None:
    mask = traced_mask_mod(function, (1, 1, _ROWS, _KEYS), (8, 8))
    with pytest.raises(UnsupportedProgramError, match=named):
        Fa4Forward(DOCUMENTED)(_call(mask))
