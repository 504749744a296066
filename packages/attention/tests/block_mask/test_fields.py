"""A block mask has torch's fields and methods, and what is assigned to it holds."""

from __future__ import annotations

import copy
import math
import pickle
import pickletools

import pytest
import torch
from torch.nn.attention import flex_attention as stock
from torch.nn.attention.flex_attention import create_block_mask as torch_create_block_mask
from torch.utils import _pytree as pytree

from packages.core.tests.torch_features import compares_mask_fields
from torchyard_attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    masks,
    or_masks,
)

torch.manual_seed(0)
_PAIRS = torch.rand(2, 3, 300, 290) < 0.001
_PAIRS[0, 1, :, 128:256] = True


def sparse(b, h, q, k):
    return _PAIRS[b, h, q, k] | (q - k < -200)


def causal(b, h, q, k):
    return q >= k


def _both(**kwargs):
    return (
        create_block_mask(sparse, 2, 3, 300, 290, device="cpu", BLOCK_SIZE=32, **kwargs),
        torch_create_block_mask(sparse, 2, 3, 300, 290, device="cpu", BLOCK_SIZE=32, **kwargs),
    )


def _attend(mask, q_length=None):
    batch, heads, rows, keys = mask.shape
    generator = torch.Generator().manual_seed(1)
    query, key = (
        torch.randn(batch, heads, n, 8, generator=generator, dtype=torch.float64)
        for n in (rows, keys)
    )
    return flex_attention(query, key, key, block_mask=mask), query, key


def _expected(query, key, visible):
    scores = (query @ key.mT / math.sqrt(8)).masked_fill(~visible, -math.inf)
    return scores.softmax(-1).nan_to_num() @ key


def _assert_computes(mask, visible):
    out, query, key = _attend(mask)
    torch.testing.assert_close(out, _expected(query, key, visible))


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("descending", [True, False])
def test_fields_equal_torchs(descending, separate):
    if not compares_mask_fields():
        pytest.skip("this torch's masks lack the fields")
    ours, theirs = _both(
        compute_dq_write_order=True, dq_kv_order=descending, separate_full_blocks=separate
    )
    for counts, indices in (
        ("kv_num_blocks", "kv_indices"),
        ("full_kv_num_blocks", "full_kv_indices"),
        ("q_num_blocks", "q_indices"),
        ("full_q_num_blocks", "full_q_indices"),
    ):
        if getattr(theirs, counts) is None:
            assert getattr(ours, counts) is getattr(ours, indices) is None
            continue
        assert torch.equal(getattr(ours, counts), getattr(theirs, counts))
        width = torch.arange(getattr(theirs, indices).shape[-1])
        used = width < getattr(theirs, counts)[..., None]
        assert getattr(ours, indices).dtype == torch.int32
        assert torch.equal(getattr(ours, indices)[used], getattr(theirs, indices)[used])
    for order, counts in (
        ("dq_write_order", "q_num_blocks"),
        ("dq_write_order_full", "full_q_num_blocks"),
    ):
        if getattr(theirs, order) is None:
            assert getattr(ours, order) is None
            continue
        found, expected = getattr(ours, order), getattr(theirs, order)
        used = torch.arange(found.shape[-1]) < getattr(theirs, counts)[..., None]
        assert torch.equal(found[used], expected[used])
    assert ours.dq_kv_order_spt is theirs.dq_kv_order_spt
    assert ours.dq_kv_order is theirs.dq_kv_order is None
    for flatten in (True, False):
        mine, torchs = ours.as_tuple(flatten), theirs.as_tuple(flatten)
        assert [type(item) for item in mine] == [type(item) for item in torchs]
    assert ours.numel() == theirs.numel()
    assert ours.to_dense().dtype == theirs.to_dense().dtype


def test_columns_are_left_out_where_nobody_wants_them():
    made, _ = _both()
    lists = (made.kv_num_blocks, made.kv_indices)
    mask = BlockMask.from_kv_blocks(
        *lists, BLOCK_SIZE=32, seq_lengths=(300, 290), compute_q_blocks=False
    )
    assert mask.q_num_blocks is mask.q_indices is None
    assert mask.full_q_num_blocks is mask.full_q_indices is None
    assert mask.dq_write_order is None


def test_a_mask_without_lists_of_full_blocks_has_none_whatever_becomes_of_it():
    if not compares_mask_fields():
        pytest.skip("this torch's masks lack the fields")

    def pairs(b, h, q, k):
        return (q - k < 40) & (q >= k)

    def fields(mask):
        return [field is None for field in mask.as_tuple()]

    options = {"device": "cpu", "BLOCK_SIZE": 32}
    whole, theirs = (
        make(pairs, 1, 2, 256, 256, separate_full_blocks=False, **options)
        for make in (create_block_mask, torch_create_block_mask)
    )
    listed = BlockMask.from_kv_blocks(
        whole.kv_num_blocks, whole.kv_indices, BLOCK_SIZE=32, mask_mod=pairs
    )
    mapped = pytree.tree_map(lambda tensor: tensor.clone(), whole)
    for mask in (whole, listed, mapped, copy.deepcopy(whole), whole.to("cpu")):
        assert fields(mask) == fields(theirs)
        assert mask.to_dense().equal(theirs.to_dense())
        assert mask.sparsity() == pytest.approx(theirs.sparsity())
        _assert_computes(mask, create_mask(pairs, 1, 2, 256, 256, device="cpu"))
    for mask in (whole[:, 1], whole._adjust(128, 96), whole.part([1, 2], [0, 1])):
        assert mask.full_kv_num_blocks is mask.full_q_indices is None
        assert mask.q_indices is not None
    assert whole[0, 1, 2:4].to_dense().equal(theirs.to_dense()[:1, 1:, 2:4])
    # Lists that are given and empty stay lists.
    empty = torch.zeros_like(whole.kv_num_blocks)
    given = BlockMask.from_kv_blocks(
        whole.kv_num_blocks, whole.kv_indices, empty, whole.kv_indices, 32, pairs
    )
    assert torch.equal(given.full_kv_num_blocks, empty)


def test_lists_by_columns_can_be_left_out_afterwards():
    mask = create_block_mask(causal, 1, 1, 128, 128, device="cpu", BLOCK_SIZE=32)
    expected, _, _ = _attend(mask)
    with pytest.raises(TypeError, match="lists by columns follow from those by rows"):
        mask.q_indices = mask.kv_indices
    mask.q_num_blocks = None
    assert mask.q_num_blocks is mask.full_q_indices is mask.dq_write_order is None
    assert torch.equal(_attend(mask)[0], expected)


@pytest.mark.parametrize("size", [1 << 30, (1 << 30, 32), (64, 1 << 40)], ids=str)
def test_a_block_far_longer_than_the_sequence_costs_no_memory_for_the_rest(size):
    mask = create_block_mask(causal, 1, 1, 100, 90, device="cpu", BLOCK_SIZE=size)
    assert mask.bits.numel() <= 1 << 22
    _assert_computes(mask, create_mask(causal, 1, 1, 100, 90))


def test_torchs_empty_mask_shows_everything():
    query = torch.randn(1, 2, 70, 8)
    mask = stock._create_empty_block_mask(query, query)
    torch.testing.assert_close(
        flex_attention(query, query, query, block_mask=mask), flex_attention(query, query, query)
    )


def test_a_picture_has_a_cell_per_block_and_is_printed():
    mask = create_block_mask(causal, 1, 1, 256, 256, device="cpu", BLOCK_SIZE=64)
    lines = mask.to_string(-1).splitlines()
    assert lines[0] == "(0, 0)"
    assert [line.rstrip() for line in lines[1:]] == ["██" * n for n in (1, 2, 3, 4)]
    assert mask.to_string(2).splitlines()[1:] == ["░░  ", "██░░"]
    for text in (str(mask), repr(mask)):
        assert "shape=(1, 1, 256, 256)" in text
        assert "mask_mod=causal" in text
        assert "████████" in text
    many = create_block_mask(causal, 3, 2, 64, 64, device="cpu")
    assert many.to_string(limit=2).count("██") == 2
    assert "4 more" in many.to_string(limit=2)
    assert "mask_mod=causal" in repr(mask.to("meta"))
    assert "BlockMask" in repr(create_block_mask(causal, 1, 1, 0, 0, device="cpu"))


@pytest.mark.parametrize("lengths", [(300, 290), (256, 290), (200, 100), (1, 1), (33, 256)])
def test_adjust_gives_the_mask_of_the_first_queries_and_keys(lengths):
    mask, _ = _both()
    found = mask._adjust(*lengths)
    assert found.shape == (2, 3, *lengths)
    assert found.mask_mod is sparse
    visible = create_mask(sparse, 2, 3, 300, 290)[..., : lengths[0], : lengths[1]]
    _assert_computes(found, visible)
    with pytest.raises(ValueError, match=r"expected lengths up to \(300, 290\), got \(301, 1\)"):
        mask._adjust(301, 1)


@pytest.mark.parametrize("lengths_first", [True, False])
def test_a_row_of_blocks_takes_another_function_and_length(lengths_first):
    whole = create_block_mask(causal, None, None, 256, 256, device="cpu")
    position = torch.tensor([130])
    row = whole[:, :, position // 128]
    assert row.mask_mod is None

    def placed(b, h, q, k):
        return causal(b, h, q + position[0], k)

    if lengths_first:
        row.seq_lengths = (1, 256)
        with pytest.raises(ValueError, match=r"seq_lengths was set .* set mask_mod too"):
            _attend(row)
        row.mask_mod = placed
    else:
        row.mask_mod = placed
        row.seq_lengths = (1, 256)
    _assert_computes(row, torch.arange(256) <= 130)
    # What it captures is followed, as in any mask.
    position.fill_(200)
    _assert_computes(row, torch.arange(256) <= 200)
    row.mask_mod = lambda b, h, q, k: k == 7
    _assert_computes(row, (torch.arange(256) == 7) | (torch.arange(256) < 128))


def test_a_causal_mask_that_takes_another_function_is_causal_no_longer():
    mask = create_block_mask(causal, None, None, 96, 96, device="cpu")
    _assert_computes(mask, torch.ones(96, 96, dtype=torch.bool).tril())
    mask.mask_mod = lambda b, h, q, k: (q >= k) & (k != 3)
    visible = torch.ones(96, 96, dtype=torch.bool).tril()
    visible[:, 3] = False
    _assert_computes(mask, visible)
    mask.seq_lengths = (90, 96)
    _assert_computes(mask, visible[:90])


@pytest.mark.sweep
def test_decoding_with_a_row_of_blocks_is_one_graph():
    whole = create_block_mask(causal, None, None, 256, 256, device="cpu")

    def step(query, key, position):
        row = whole[:, :, position // 128]
        row.mask_mod = lambda b, h, q, k: causal(b, h, q + position[0], k)
        row.seq_lengths = (1, 256)
        return flex_attention(query, key, key, block_mask=row)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    query, key = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 256, 8)
    for at in (130, 5, 255):
        found = compiled(query, key, torch.tensor([at]))
        torch.testing.assert_close(found, _expected(query, key, torch.arange(256) <= at))


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("mask_mod", 3, TypeError, "mask_mod: expected a function, got 3"),
        ("seq_lengths", (129, 100), ValueError, "seq_lengths: expected 1 to 128 queries"),
        ("kv_indices", torch.zeros(1), AttributeError, "kv_indices"),
        ("bits", torch.zeros(1), AttributeError, "bits"),
    ],
)
def test_what_cannot_be_assigned_is_refused(name, value, error, message):
    mask = create_block_mask(causal, None, None, 100, 100, device="cpu")
    with pytest.raises(error, match=message):
        setattr(mask, name, value)
    _assert_computes(mask, torch.ones(100, 100, dtype=torch.bool).tril())


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (2, IndexError, "expected -2 to 1, got 2"),
        ((0, -4), IndexError, "expected -3 to 2, got -4"),
        ((0, 0, 0, 0), IndexError, "got 4 indices"),
        (None, TypeError, "index: expected an int, got None"),
        (True, TypeError, "index: expected an int, got True"),
    ],
    ids=str,
)
def test_an_index_that_is_none_is_refused(index, error, message):
    mask, _ = _both()
    with pytest.raises(error, match=message):
        mask[index]


def test_index_tensors_of_no_dimension_and_of_bool_pick_rows():
    mask, _ = _both()
    visible = create_mask(sparse, 2, 3, 300, 290)
    _assert_computes(mask[torch.tensor(1), 0:2], visible[1:, :2])
    rows = torch.zeros(10, dtype=torch.bool)
    rows[[2, 5]] = True
    _assert_computes(mask[:, :, rows], torch.cat([visible[:, :, 64:96], visible[:, :, 160:192]], 2))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_lists_that_are_no_integers_are_refused(dtype):
    counts = torch.ones(1, 1, 1, dtype=torch.int32)
    indices = torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    with pytest.raises(TypeError, match="kv_indices: expected integers"):
        BlockMask.from_kv_blocks(counts, indices.to(dtype))
    with pytest.raises(TypeError, match="full_kv_num_blocks: expected integers"):
        BlockMask.from_kv_blocks(counts, indices, counts.to(dtype), indices)


def test_combined_masks_are_named_as_functions_are():
    for make, name in ((and_masks, "and_mask"), (or_masks, "or_mask")):
        mask = make(causal, causal)
        assert mask.__name__ == name
        mask.__name__ = "mine"
        assert mask.__name__ == "mine"
        assert "mask_mod=mine" in repr(create_block_mask(mask, 1, 1, 4, 4, device="cpu"))


def _below(limit):
    return lambda b, h, q, k: k < limit[b]


@pytest.mark.parametrize(
    "name", ["by name", "lambda", "combined", "combined by name", "structured", "window"]
)
def test_a_mask_is_pickled_without_code(name):
    mod = {
        "by name": causal,
        "lambda": _below(torch.tensor([40, 290])),
        "combined": and_masks(causal, _below(torch.tensor([40, 290]))),
        "combined by name": or_masks(causal, sparse),
        "structured": masks.causal,
        "window": and_masks(masks.causal, masks.sliding_window(50)),
    }[name]
    mask = create_block_mask(mod, 2, 3, 300, 290, device="cpu", BLOCK_SIZE=32)
    visible = create_mask(mod, 2, 3, 300, 290)
    stored = pickle.dumps(mask)
    names = [str(argument) for opcode, argument, _ in pickletools.genops(stored) if argument]
    assert not any("marshal" in name or "CodeType" in name for name in names)
    found = pickle.loads(stored)
    _assert_computes(found, visible)
    # The function lives on: it can be evaluated elsewhere, and what it captures is followed.
    assert torch.equal(create_mask(found.mask_mod, 2, 3, 300, 290), visible)
    assert (type(found.mask_mod) is type(mod)) == ("lambda" not in name and name != "combined")
    for tensor, other in zip(found.mask_captured, mask.mask_captured, strict=True):
        tensor.fill_(1)
        other.fill_(1)
        assert torch.equal(_attend(found)[0], _attend(mask)[0])


def test_a_copy_a_moved_mask_and_a_mapped_one_do_not_trust_bits_that_are_out_of_date():
    limit = torch.tensor([40, 290])
    mask = create_block_mask(lambda b, h, q, k: k < limit[b], 2, 1, 64, 290, device="cpu")
    limit.fill_(7)
    visible = (torch.arange(290) < 7).expand(2, 1, 64, 290)
    for made in (
        copy.deepcopy(mask),
        copy.copy(mask),
        mask.to("cpu"),
        pytree.tree_map(torch.clone, mask),
        pickle.loads(pickle.dumps(mask)),
        mask[:],
        mask._adjust(64, 290),
    ):
        _assert_computes(made, visible)
    assert copy.deepcopy(mask).mask_mod is mask.mask_mod


def test_masks_are_equal_to_themselves_alone_as_torchs():
    one, other = (create_block_mask(causal, 1, 1, 64, 64, device="cpu") for _ in range(2))
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
