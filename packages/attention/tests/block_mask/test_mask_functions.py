"""Any mask function is right for every batch, head and pair, or is refused by name."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_mask as stock_create_mask

from torchyard_attention import (
    BlockMask,
    ProgramError,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    masks,
    noop_mask,
    or_masks,
)
from torchyard_attention.contract import MaskBlocks
from torchyard_attention.visibility import dense_visibility

_HEADS, _BATCH, _ROWS, _KEYS = 3, 2, 70, 90
torch.manual_seed(5)
_PER_HEAD = torch.randint(1, 60, (_HEADS,))
_PER_BATCH = torch.randint(1, _KEYS, (_BATCH,))
_PAIRS = torch.rand(_ROWS, _KEYS) < 0.5


def _spelled_out(mask: BlockMask) -> torch.Tensor:
    blocks = MaskBlocks(mask.BLOCK_SIZE, *mask.block_tensors())
    return dense_visibility(blocks, *mask.seq_lengths)


_LEAVES = {
    "causal": (lambda b, h, q, k: q >= k, set()),
    "window of a head": (lambda b, h, q, k: (q - k).abs() < _PER_HEAD[h], {"H"}),
    "length of a batch": (lambda b, h, q, k: k < _PER_BATCH[b], {"B"}),
    "pairs": (lambda b, h, q, k: _PAIRS[q, k], set()),
    "odd places": (lambda b, h, q, k: (q + k + b * h) % 2 == 1, {"B", "H"}),
    "everything": (noop_mask, set()),
    "structured": (masks.causal, set()),
}


def _evaluated(tree, b, h):
    """Evaluate a tree of masks with torch on all pairs of a batch and a head."""
    if isinstance(tree, str):
        q, k = torch.arange(_ROWS)[:, None], torch.arange(_KEYS)
        found = _LEAVES[tree][0](torch.tensor(b), torch.tensor(h), q, k)
        return found.expand(_ROWS, _KEYS)
    word, *parts = tree
    found = [_evaluated(part, b, h) for part in parts]
    if word == "not":
        return ~found[0]
    return found[0] & found[1] if word == "and" else found[0] | found[1]


def _mod_of(tree):
    if isinstance(tree, str):
        return _LEAVES[tree][0]
    word, *parts = tree
    mods = [_mod_of(part) for part in parts]
    if word == "not":
        return lambda b, h, q, k: ~mods[0](b, h, q, k)
    return (and_masks if word == "and" else or_masks)(*mods)


def _read(tree) -> set[str]:
    if isinstance(tree, str):
        return _LEAVES[tree][1]
    return set().union(*map(_read, tree[1:]))


_TREES = st.recursive(
    st.sampled_from(sorted(_LEAVES)),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(("and", "or")), inner, inner)
    ),
    max_leaves=4,
)


@given(tree=_TREES, sized=st.sets(st.sampled_from(("B", "H"))), block=st.sampled_from((32, 128)))
@settings(max_examples=25, deadline=None)
def test_a_mask_is_right_for_every_batch_and_head_or_refused_where_it_is_used(tree, sized, block):
    sizes = (_BATCH if "B" in sized else None, _HEADS if "H" in sized else None)
    mask = create_block_mask(_mod_of(tree), *sizes, _ROWS, _KEYS, device="cpu", BLOCK_SIZE=block)
    dense = _spelled_out(mask)
    for b in range(dense.shape[0]):
        for h in range(dense.shape[1]):
            assert torch.equal(dense[b, h], _evaluated(tree, b, h))

    query = torch.randn(_BATCH, _HEADS, _ROWS, 8, dtype=torch.float64)
    key = torch.randn(_BATCH, _HEADS, _KEYS, 8, dtype=torch.float64)
    if not _read(tree) <= sized:
        (first, *_) = sorted(_read(tree) - sized)
        with pytest.raises(ValueError, match=rf"block_mask: its mask_mod reads .* give {first}="):
            flex_attention(query, key, key, block_mask=mask)
        return
    visible = torch.stack(
        [torch.stack([_evaluated(tree, b, h) for h in range(_HEADS)]) for b in range(_BATCH)]
    )
    scores = (query @ key.mT / math.sqrt(8)).masked_fill(~visible, -math.inf)
    expected = scores.softmax(-1).nan_to_num() @ key
    torch.testing.assert_close(flex_attention(query, key, key, block_mask=mask), expected)


def test_a_mask_of_head_0_is_refused_after_the_same_call_with_another_mask():
    # The second call of a kind goes to its kernel without the usual checks.
    x = torch.randn(1, 4, 64, 16)
    of_all = create_block_mask(lambda b, h, q, k: q >= k, None, None, 64, 64, device="cpu")
    of_one = create_block_mask(lambda b, h, q, k: q >= k + h, None, None, 64, 64, device="cpu")
    for _ in range(3):
        flex_attention(x, x, x, block_mask=of_all)
    for mask in (of_one, of_one[:, :, :], of_one.to("cpu")):
        with pytest.raises(ValueError, match=r"reads h, .* head 0 alone.* give H=4"):
            flex_attention(x, x, x, block_mask=mask)
    flex_attention(x[:, :1], x[:, :1], x[:, :1], block_mask=of_one)


def test_lists_of_one_head_with_a_function_of_heads_are_refused_for_several():
    counts = torch.ones(1, 1, 1, dtype=torch.int32)
    indices = torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    lists = (counts, indices)
    x = torch.randn(1, 2, 64, 16)

    def mod(b, h, q, k):
        return q >= k + h

    with pytest.raises(ValueError, match=r"lists of 2 to BlockMask\.from_kv_blocks"):
        flex_attention(
            x, x, x, block_mask=BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=64, mask_mod=mod)
        )
    both = [item.expand(1, 2, *item.shape[2:]) for item in lists]
    mask = BlockMask.from_kv_blocks(*both, BLOCK_SIZE=64, mask_mod=mod)
    assert torch.equal(_spelled_out(mask), create_mask(mod, 1, 2, 64, 64))
    flex_attention(x, x, x, block_mask=mask)


_TABLE = torch.randint(0, 2, (70, 90))
_NOT_BOOL = {
    "additive": lambda b, h, q, k: _TABLE.to(torch.float32).log()[q, k],
    "uint8": lambda b, h, q, k: _TABLE.to(torch.uint8)[q, k],
    "int64": lambda b, h, q, k: _TABLE[q, k],
    "difference": lambda b, h, q, k: q - k,
    "where": lambda b, h, q, k: torch.where(q >= k, 0.0, -math.inf),
    "number": lambda b, h, q, k: 1,
    "float": lambda b, h, q, k: -math.inf,
    "and": and_masks(lambda b, h, q, k: _TABLE[q, k], masks.causal),
    "or": or_masks(masks.causal, lambda b, h, q, k: _TABLE[q, k]),
    "one": and_masks(lambda b, h, q, k: _TABLE[q, k]),
    "not pointwise": lambda b, h, q, k: torch.dot(_TABLE[q].float(), _TABLE[k].float()),
}


@pytest.mark.parametrize("name", _NOT_BOOL)
def test_a_mask_function_that_returns_no_bool_is_refused_everywhere(name):
    mod = _NOT_BOOL[name]
    counts = torch.ones(1, 1, 1, dtype=torch.int32)
    indices = torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    makers = (
        lambda: create_mask(mod, 1, 1, 70, 70),
        lambda: create_block_mask(mod, 1, 1, 70, 70, device="cpu"),
        lambda: create_block_mask(mod, 1, 1, 70, 70, device="cpu", separate_full_blocks=False),
        lambda: BlockMask.from_kv_blocks(
            counts, indices, BLOCK_SIZE=128, mask_mod=mod, seq_lengths=(70, 70)
        ),
    )
    for make in makers:
        with pytest.raises(ProgramError, match=r"mask_mod: expected bool, .* got torch\.\w+"):
            make()


def test_true_and_false_and_bool_tensors_are_masks():
    for value in (True, False):
        mask = create_mask(lambda b, h, q, k, value=value: value, 1, 1, 3, 4)
        assert mask.dtype == torch.bool
        assert bool((mask == value).all())
    assert torch.equal(
        create_mask(lambda b, h, q, k: _TABLE.bool()[q, k], 1, 1, 70, 90)[0, 0], _TABLE.bool()
    )


def test_the_dense_mask_of_a_score_mod_is_what_it_does_not_hide():
    bias = torch.randn(60)

    def score_mod(score, b, h, q, k, *, slope=2.0):
        return torch.where((q >= k) & (h < 1), score * slope + bias[k], -torch.inf)

    def hidden_by_infinity(score, b, h, q, k):
        return score + torch.where(k < 9, 0.0, -torch.inf)

    for mod in (score_mod, hidden_by_infinity, functools.partial(score_mod, slope=3.0)):
        ours, theirs = create_mask(mod, 2, 2, 50, 60), stock_create_mask(mod, 2, 2, 50, 60, "cpu")
        assert torch.equal(ours, theirs)
        assert theirs.any()
        assert not theirs.all()
