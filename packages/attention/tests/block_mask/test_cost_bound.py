"""A mask that could not be made, or only in hours, is refused before anything is made."""

from __future__ import annotations

import time

import pytest
import torch

from torchyard_attention import create_block_mask, masks
from torchyard_attention._mask_blocks import _cost


def causal(b, h, q, k):
    return q >= k


def even(b, h, q, k):
    return (q + k) % 2 == 0


@pytest.mark.parametrize("mod", [causal, masks.causal, masks.sliding_window(100)])
@pytest.mark.parametrize("length", [pytest.param(2**31, marks=pytest.mark.sweep), 2**45])
def test_positions_beyond_memory_are_refused_with_what_they_take(mod, length, monkeypatch):
    monkeypatch.setattr(_cost, "_physical_memory", lambda: 8 << 30)
    before = time.process_time()
    with pytest.raises(ValueError, match=rf"Q_LEN, KV_LEN: .* {length} x {length} .* takes .* GiB"):
        create_block_mask(mod, None, None, length, length, device="cpu")
    # Unbounded it would take years; the limit is far above what it takes.
    assert time.process_time() - before < 60


def test_pairs_beyond_what_can_be_evaluated_are_refused(monkeypatch):
    monkeypatch.setattr(_cost, "_physical_memory", lambda: None)
    with pytest.raises(ValueError, match=r"Q_LEN, KV_LEN: expected at most 2\*\*38 pairs"):
        create_block_mask(even, None, None, 2**20, 2**20, device="cpu")
    with pytest.raises(ValueError, match=r"for 64 batches and heads"):
        create_block_mask(even, 8, 8, 2**17, 2**17, device="cpu")


def test_a_function_that_is_causal_is_not_evaluated_for_each_pair(monkeypatch):
    monkeypatch.setattr(_cost, "_physical_memory", lambda: None)
    mask = create_block_mask(causal, None, None, 2**18, 2**18, device="cpu")
    known = create_block_mask(masks.causal, None, None, 2**18, 2**18, device="cpu")
    assert torch.equal(mask.kv_num_blocks, known.kv_num_blocks)
    assert torch.equal(mask.full_kv_num_blocks, known.full_kv_num_blocks)


def test_many_positions_of_which_few_see_each_other_are_made():
    mask = create_block_mask(masks.sliding_window(100), None, None, 2**18, 2**18, device="cpu")
    assert mask.shape == (1, 1, 2**18, 2**18)
    one = create_block_mask(masks.causal, None, None, 1, 2**31, device="cpu", BLOCK_SIZE=(1, 128))
    assert int(one.kv_num_blocks.sum()) == 1
    assert torch.equal(one.kv_indices.flatten()[:1], torch.zeros(1, dtype=torch.int32))
