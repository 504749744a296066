"""The forward kernel under Triton's interpreter is as near to float64 as a naive computation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from packages.attention.tests.attention_calls import CALLS, LAYOUTS, call_of, laid_out
from packages.attention.tests.score_programs import MASKS
from torchyard_attention import scores
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call, mask_blocks, traced_mask_mod, traced_score_mod
from torchyard_attention.tolerance import Ruler, report
from torchyard_triton.attention import Tiles, forward

_TILES = Tiles(rows=32, keys=32)


@pytest.mark.parametrize("name", CALLS)
def test_forward(name: str) -> None:
    call = call_of(name)
    result = forward(call, tiles=_TILES)
    assert result.out.is_contiguous()
    assert not (message := report(Ruler(call).compare(result))), message


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout: str) -> None:
    call = laid_out(call_of("grouped-2"), layout)
    assert not (message := report(Ruler(call).compare(forward(call, tiles=_TILES)))), message


@pytest.mark.parametrize("name", ["sliding_window", "document", "natten_2d"])
@pytest.mark.parametrize("blocks", [True, False])
def test_a_mask_program_is_the_mask(name: str, blocks: bool) -> None:
    function, length = MASKS[name], 50
    at = torch.arange(length)
    visible = function(torch.zeros(1), torch.zeros(1), at[:, None], at)[None, None]
    call = make_call(
        batch=1, q_heads=2, q_length=length, head_dim=16, visible=visible, block_size=(16, 16)
    )
    mod = traced_score_mod(lambda s, b, h, q, k: function(b, h, q, k))
    given = call
    if call.mask is not None and blocks:
        # The program is computed, and the bits are not read.
        given = replace(call, mask=replace(call.mask, bits=torch.zeros_like(call.mask.bits)))
    elif not blocks:
        given = replace(call, mask=None)
    result = forward(given, mask_mod=mod, tiles=_TILES)
    assert not (message := report(Ruler(call).compare(result))), message


@pytest.mark.parametrize("name", ["sliding_window", "document", "varlen", "natten_2d"])
def test_the_program_that_a_mask_carries_gives_the_same_bits_as_the_masks_own(name: str) -> None:
    mask = traced_mask_mod(MASKS[name], (1, 1, 60, 60), (16, 16))
    call = make_call(batch=1, q_heads=2, q_length=60, head_dim=16)
    call = replace(call, mask=mask)
    by_bits, by_program = (
        forward(call, mask_mod=source, tiles=_TILES) for source in (None, mask.source)
    )
    assert torch.equal(by_bits.out, by_program.out)
    assert by_bits.lse is not None
    assert by_program.lse is not None
    assert torch.equal(by_bits.lse, by_program.lse)


def test_blocks_that_are_not_listed_are_not_read() -> None:
    visible = torch.zeros((1, 1, 32, 64), dtype=torch.bool)
    visible[..., 16:32] = True
    call = make_call(batch=1, q_heads=1, q_length=32, kv_length=64, head_dim=16, visible=visible)
    call = replace(call, mask=mask_blocks(visible, (16, 16)))
    key, value = call.key.clone(), call.value.clone()
    for tensor in (key, value):
        tensor[:, :, :16] = torch.nan
        tensor[:, :, 32:] = torch.nan
    result = forward(replace(call, key=key, value=value), tiles=_TILES)
    assert torch.equal(result.out, forward(call, tiles=_TILES).out)
    assert result.out.isfinite().all()


def test_sinks() -> None:
    call = replace(call_of("empty-rows"), max_scores=False)
    logits = torch.tensor([0.5, -1.0])
    result = forward(call, sinks=logits, tiles=_TILES)
    exact = reference_forward(call)
    assert exact.lse is not None
    assert result.lse is not None
    wanted = scores.sinks(exact.out, exact.lse, logits)
    torch.testing.assert_close(result.out, wanted.out, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.lse, wanted.lse, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tiles", [(16, 64), (64, 16), (16, 16)])
def test_tiles_change_no_meaning(tiles: tuple[int, int]) -> None:
    call = call_of("odd-blocks")
    result: Any = forward(call, tiles=Tiles(*tiles))
    assert not (message := report(Ruler(call).compare(result))), message


def test_calls_beyond_the_indices_are_refused() -> None:
    call = make_call(batch=1, q_heads=1, q_length=4, head_dim=16)
    long = call.key[:, :, :1].expand(1, 1, 2**28 + 1, 16)
    with pytest.raises(ValueError, match="kv_length: expected at most 268435456"):
        forward(replace(call, key=long, value=long))
