"""Block masks: as torch's where both speak, exact down to the bit, and never dense."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask as torch_create_block_mask
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torchyard_attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    noop_mask,
    or_masks,
)
from torchyard_attention._mask_blocks._evaluation import pack_bits, unpack_bits

torch.manual_seed(0)
DOCUMENT = torch.randint(0, 3, (2, 300)).sort(dim=1).values
EMBEDDING = torch.randn(300, 4)
MASKS = {
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q >= k) & (q - k < 50),
    "document": lambda b, h, q, k: DOCUMENT[b, q] == DOCUMENT[b, k],
    "per head": lambda b, h, q, k: (q - k) < h * 40,
    "general": lambda b, h, q, k: torch.dot(EMBEDDING[q], EMBEDDING[k]) > 0,
    "nothing": lambda b, h, q, k: q < 0,
    "everything": noop_mask,
}


def pairs(mask: BlockMask) -> torch.Tensor:
    """Spell a block mask out: bool [Bm, Hm, Sq, Sk]."""
    (rows, keys), (batch, heads, q_length, kv_length) = mask.BLOCK_SIZE, mask.shape
    dense = torch.zeros(batch, heads, q_length, kv_length, dtype=torch.bool)
    for b, h, row in torch.cartesian_prod(
        *(torch.arange(size) for size in mask.kv_num_blocks.shape)
    ).tolist():
        stripe = dense[b, h, row * rows : (row + 1) * rows]
        for place in range(int(mask.kv_num_blocks[b, h, row])):
            column = int(mask.kv_indices[b, h, row, place])
            tile = unpack_bits(mask.bits[int(mask.first_partial[b, h, row]) + place], keys)
            part = stripe[:, column * keys : (column + 1) * keys]
            part |= tile[: part.shape[0], : part.shape[1]]
        if mask.full_kv_num_blocks is None:
            continue
        for place in range(int(mask.full_kv_num_blocks[b, h, row])):
            column = int(mask.full_kv_indices[b, h, row, place])
            stripe[:, column * keys : (column + 1) * keys] = True
    return dense


@pytest.mark.parametrize("block_size", [128, (64, 32), (100, 17)], ids=str)
@pytest.mark.parametrize(
    "lengths", [(300, 300), (1, 300), (257, 129), (128, 128), (0, 5), (5, 0)], ids=str
)
@pytest.mark.parametrize("separate", [True, False], ids=["separate", "together"])
@pytest.mark.parametrize("name", MASKS)
def test_blocks_show_exactly_what_the_function_shows(name, separate, lengths, block_size):
    mask = create_block_mask(
        MASKS[name],
        2,
        3,
        *lengths,
        device="cpu",
        BLOCK_SIZE=block_size,
        separate_full_blocks=separate,
    )
    assert torch.equal(pairs(mask), create_mask(MASKS[name], 2, 3, *lengths))


@pytest.mark.parametrize("name", [name for name in MASKS if name != "general"])
def test_lists_equal_torchs(name):
    ours = create_block_mask(MASKS[name], 2, 3, 300, 290, device="cpu")
    theirs = torch_create_block_mask(MASKS[name], 2, 3, 300, 290, device="cpu")

    assert torch.equal(ours.kv_num_blocks, theirs.kv_num_blocks)
    assert torch.equal(ours.full_kv_num_blocks, theirs.full_kv_num_blocks)
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    assert ours.shape == theirs.shape


class _LargestTensor(TorchDispatchMode):
    """Keeps the size of the largest tensor that any torch call returned."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.largest = max(self.largest, leaf.numel())
        return result


def test_no_tensor_of_all_pairs_is_made():
    from torchyard_attention._mask_blocks._evaluation import blocks_of
    from torchyard_attention._mods._trace import MASK_INPUTS, trace

    length = 8192
    text, captured = trace(
        MASKS["window"], "mask_mod", MASK_INPUTS, torch.float32, torch.device("cpu")
    )
    with _LargestTensor() as watch:
        blocks_of(text, tuple(captured), (1, 1, length, length), (128, 128), torch.device("cpu"))
    assert 0 < watch.largest < length * length / 8


@given(st.integers(0, 5), st.integers(1, 9), st.integers(1, 40), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_bits_survive_packing(count, rows, keys, random):
    visible = torch.tensor(
        [random.random() < 0.5 for _ in range(count * rows * keys)], dtype=torch.bool
    ).view(count, rows, keys)
    packed = pack_bits(visible)
    assert packed.shape == (count, rows, -(-keys // 8))
    assert torch.equal(unpack_bits(packed, keys), visible)


def test_bit_order_is_lowest_first():
    visible = torch.zeros(1, 1, 16, dtype=torch.bool)
    visible[0, 0, [0, 9]] = True
    assert pack_bits(visible).flatten().tolist() == [1, 2]


def test_a_slice_keeps_its_bits():
    mask = create_block_mask(MASKS["document"], 2, 3, 300, 300, device="cpu")
    assert torch.equal(pairs(mask[1:2, :, 1:3]), pairs(mask)[1:2, :, 128:300])
    assert torch.equal(pairs(mask[0]), pairs(mask)[:1])
    assert mask[:, :, :1].seq_lengths == (128, 300)


def test_a_slice_that_puts_the_short_row_first_is_refused():
    mask = create_block_mask(MASKS["causal"], None, None, 300, 300, device="cpu")
    with pytest.raises(ValueError, match="can only be taken last"):
        mask[:, :, torch.tensor([2, 0])]


def test_a_slice_from_the_start_stays_causal_and_another_does_not():
    mask = create_block_mask(MASKS["causal"], None, None, 300, 300, device="cpu")
    assert mask.causal
    assert mask[:, :, :2].causal
    assert not mask[:, :, 1:].causal


def test_and_or_of_masks_equal_the_logic_of_their_pairs():
    first, second = MASKS["causal"], MASKS["document"]
    both = create_mask(and_masks(first, second), 2, 1, 40, 40)
    either = create_mask(or_masks(first, second), 2, 1, 40, 40)
    a, b = create_mask(first, 2, 1, 40, 40), create_mask(second, 2, 1, 40, 40)
    assert torch.equal(both, a & b)
    assert torch.equal(either, a | b)


def test_a_mask_is_a_tree_of_tensors():
    mask = create_block_mask(MASKS["document"], 2, None, 300, 300, device="cpu")
    leaves, spec = pytree.tree_flatten(mask)
    again = pytree.tree_unflatten(leaves, spec)
    assert torch.equal(pairs(again), pairs(mask))
    assert again.mask_text == mask.mask_text
    assert again.causal == mask.causal


def test_moving_a_mask_moves_every_tensor():
    mask = create_block_mask(MASKS["document"], 2, None, 300, 300, device="cpu").to("meta")
    assert {leaf.device.type for leaf in pytree.tree_leaves(mask)} == {"meta"}


def test_sparsity_counts_hidden_blocks():
    mask = create_block_mask(MASKS["causal"], None, None, 512, 512, device="cpu")
    assert mask.sparsity() == pytest.approx(100 * 6 / 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"BLOCK_SIZE": 0}, "BLOCK_SIZE: expected an int of at least 1, got 0"),
        ({"B": 0}, "B: expected an int of at least 1, got 0"),
        ({"Q_LEN": -1}, "Q_LEN: expected an int of at least 0, got -1"),
    ],
)
def test_sizes_out_of_range_are_refused_by_name(arguments, message):
    complete = {"B": 1, "H": 1, "Q_LEN": 8, "KV_LEN": 8, "device": "cpu", **arguments}
    with pytest.raises(ValueError, match=message):
        create_block_mask(MASKS["causal"], **complete)


def test_lists_of_the_wrong_shape_are_refused_by_name():
    counts = torch.ones(1, 1, 2, dtype=torch.int32)
    with pytest.raises(ValueError, match="kv_num_blocks, kv_indices: expected shapes"):
        BlockMask.from_kv_blocks(counts, torch.zeros(1, 1, 3, 2, dtype=torch.int32))
    with pytest.raises(ValueError, match="expected both or neither"):
        BlockMask.from_kv_blocks(
            counts, torch.zeros(1, 1, 2, 2, dtype=torch.int32), full_kv_num_blocks=counts
        )


def _lists(counts, indices):
    return (
        torch.tensor([[counts]], dtype=torch.int32),
        torch.tensor([[indices]], dtype=torch.int32),
    )


@pytest.mark.parametrize(
    ("partial", "full", "message"),
    [
        (([3], [[0, 1]]), ([0], [[0, 1]]), "kv_num_blocks: expected counts from 0 to 2, got 3"),
        (([1], [[0, 1]]), ([-1], [[0, 1]]), "full_kv_num_blocks: expected counts from 0 to 2"),
        (([1], [[2, 0]]), ([0], [[0, 1]]), "kv_indices: expected block numbers from 0 to 1, got 2"),
        (([1], [[0, 1]]), ([1], [[0, 1]]), "expected each block once, got block 0 twice in row 0"),
        (([2], [[1, 1]]), ([0], [[0, 1]]), "expected each block once, got block 1 twice"),
    ],
)
def test_lists_that_a_kernel_could_not_follow_are_refused(partial, full, message):
    with pytest.raises(ValueError, match=message):
        BlockMask.from_kv_blocks(*_lists(*partial), *_lists(*full))


def test_unlisted_places_may_hold_anything():
    counts, indices = _lists([1], [[1, -77]])
    mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=4)
    assert torch.equal(pairs(mask)[0, 0], torch.arange(8) >= torch.full((4, 1), 4))


def test_lists_that_do_not_fit_the_lengths_are_refused():
    with pytest.raises(ValueError, match=r"kv_indices: expected \[2, 2\] blocks for lengths"):
        BlockMask.from_kv_blocks(*_lists([1], [[0, 1]]), BLOCK_SIZE=4, seq_lengths=(8, 8))


def test_something_that_is_no_function_is_refused_by_its_place():
    with pytest.raises(TypeError, match=r"mask_mods\[1\]: expected a function"):
        and_masks(MASKS["causal"], 3)
