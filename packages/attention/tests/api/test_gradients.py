"""Attention in parts: rows and columns of a block mask, and gradients from the whole's results."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard_attention import (
    BlockMask,
    attention_gradients,
    captured_tensors,
    create_block_mask,
    create_mask,
    flex_attention,
    masks,
    merge_states,
)

LENGTH, BLOCK = 90, 16
TABLE = torch.linspace(-1, 1, 4)
HEADS_AND_BATCHES = torch.tensor([[3, 40], [11, 200]])


def _mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q - k < HEADS_AND_BATCHES[b, h]) & (k - q < 20) & ((q * k) % 7 != 3)


MASKS = {
    "causal": create_block_mask(masks.causal, None, None, LENGTH, LENGTH, "cpu", BLOCK),
    "window": create_block_mask(masks.sliding_window(40), None, None, LENGTH, LENGTH, "cpu", BLOCK),
    "any": create_block_mask(_mask_mod, 2, 2, LENGTH, LENGTH, "cpu", (BLOCK, 2 * BLOCK)),
}


def _dense(mask: BlockMask) -> Tensor:
    """Return a mask's visible pairs, by what attention makes of it: [Bm, Hm, Sq, Sk]."""
    batch, heads, q_length, kv_length = mask.shape
    query = torch.zeros(batch, heads, q_length, 1)
    key = torch.zeros(batch, heads, kv_length, 1)
    value = torch.eye(kv_length).expand(batch, heads, -1, -1)
    out: Tensor = flex_attention(
        query, key, value, block_mask=mask, implementation="attention.reference"
    )
    return out > 0


def _positions(blocks: list[int], size: int) -> Tensor:
    return torch.cat([torch.arange(b * size, min(LENGTH, b * size + size)) for b in blocks])


@st.composite
def _blocks(draw: st.DrawFn, size: int) -> list[int]:
    last = -(-LENGTH // size) - 1
    chosen = draw(
        st.permutations(range(last)).flatmap(
            lambda order: st.integers(0, last).map(lambda n: order[:n])
        )
    )
    return [*chosen, *([last] if not chosen or draw(st.booleans()) else [])]


@settings(max_examples=30)
@given(data=st.data())
@pytest.mark.parametrize("name", MASKS)
def test_a_part_of_a_mask_shows_the_same_pairs(name: str, data: st.DataObject) -> None:
    mask = MASKS[name]
    rows, columns = (data.draw(_blocks(size)) for size in mask.BLOCK_SIZE)
    part = mask.part(rows, columns)
    whole = create_mask(mask.mask_mod, *mask.shape, device="cpu")
    at = _positions(rows, mask.BLOCK_SIZE[0]), _positions(columns, mask.BLOCK_SIZE[1])
    expected = whole[:, :, at[0]][..., at[1]]
    assert part.shape == tuple(expected.shape)
    assert torch.equal(_dense(part), expected)
    if part.causal:
        assert torch.equal(expected, torch.ones_like(expected).tril())


def test_a_part_refuses_blocks_that_are_not_there_or_cannot_be_joined() -> None:
    mask = MASKS["causal"]
    with pytest.raises(ValueError, match="q_blocks: expected different blocks of 0 to 5, got"):
        mask.part([6], [0])
    with pytest.raises(ValueError, match="kv_blocks: expected different blocks"):
        mask.part([0], [1, 1])
    with pytest.raises(ValueError, match="can only be listed last"):
        mask.part([5, 0], [0])


@pytest.mark.parametrize("name", MASKS)
def test_gradients_of_parts_add_up_to_those_of_the_whole(name: str) -> None:
    mask = MASKS[name]
    generator = torch.Generator().manual_seed(0)
    query, key, value, grad = (
        torch.randn(2, heads, LENGTH, 8, generator=generator, dtype=torch.float64)
        for heads in (2, 1, 1, 2)
    )
    table = TABLE.double().requires_grad_()
    gate = torch.tensor(0.5, dtype=torch.float64)

    def mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score * gate + table[h]

    assert [t.data_ptr() for t in captured_tensors(mod, query)] == [table.data_ptr()]
    inputs = [t.requires_grad_() for t in (query, key, value)]
    out, lse = flex_attention(*inputs, mod, mask, enable_gqa=True, return_lse=True)
    expected = torch.autograd.grad([out, lse], [*inputs, table], [grad, grad[..., 0]])

    size = mask.BLOCK_SIZE[1]
    count = -(-LENGTH // size)
    found = [torch.zeros_like(t) for t in expected]
    states = []
    for columns in ([0, 2], [*(c for c in range(count) if c not in (0, 2))]):
        at = _positions(columns, size)
        part = mask.part(range(-(-LENGTH // BLOCK)), columns)
        keys, values = key.detach()[:, :, at], value.detach()[:, :, at]

        states.append(
            flex_attention(
                query.detach(), keys, values, mod, part, enable_gqa=True, return_lse=True
            )
        )
        grads = attention_gradients(
            query.detach(),
            keys,
            values,
            out.detach(),
            lse.detach(),
            grad,
            grad[..., 0],
            score_mod=mod,
            block_mask=part,
            enable_gqa=True,
        )
        found[0] += grads.query
        found[1][:, :, at] += grads.key
        found[2][:, :, at] += grads.value
        ((tensor, captured),) = grads.captured
        assert tensor is table
        found[3] += captured
    merged = merge_states(*zip(*states, strict=True))
    torch.testing.assert_close(merged, (out, lse))
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted)


def test_gradients_refuse_results_of_another_shape() -> None:
    query = torch.randn(1, 2, 5, 4)
    out, lse = flex_attention(query, query, query, return_lse=True)
    with pytest.raises(ValueError, match=r"lse: expected shape \[1, 2, 5\], got \[1, 2, 4\]"):
        attention_gradients(query, query, query, out, lse[..., :4], out)
    with pytest.raises(ValueError, match="grad_out: expected shape"):
        attention_gradients(query, query, query, out, lse, out[..., :2])


def test_nothing_is_captured_where_nothing_requires_a_gradient() -> None:
    query = torch.randn(1, 2, 5, 4)
    assert captured_tensors(None, query) == ()
    assert captured_tensors(lambda s, b, h, q, k: s + TABLE[h], query) == ()
