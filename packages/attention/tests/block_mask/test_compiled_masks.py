"""Inside of torch.compile: sizes that it leaves open, and masks that are made in the graph."""

from __future__ import annotations

import math

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from torchyard_attention import create_block_mask, flex_attention, masks


def _dense(query, key, visible, score):
    scores = score(query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]))
    return scores.masked_fill(~visible, -math.inf).softmax(-1) @ key


@pytest.mark.sweep
@pytest.mark.parametrize("backend", ["count", "inductor"])
def test_a_score_mod_that_holds_a_size_is_compiled_once_for_every_length(backend):
    count = CompileCounter()

    def attend(x):
        length = x.shape[2]
        scale = 1 / length
        return flex_attention(
            x, x, x, lambda s, b, h, q, k: torch.where(k < length - 3, s + (q - k) * scale, s)
        )

    compiled = torch.compile(
        attend, fullgraph=True, backend=count if backend == "count" else backend
    )
    for length in (40, 56, 72, 57):
        x = torch.randn(1, 2, length, 16, dtype=torch.float64)
        at = torch.arange(length)
        bias = ((at[:, None] - at) / length).masked_fill(at >= length - 3, 0)
        everything = torch.ones(length, length, dtype=torch.bool)
        expected = _dense(x, x, everything, lambda scores, bias=bias: scores + bias)
        torch.testing.assert_close(compiled(x), expected, atol=1e-6, rtol=1e-6)
    # The second length makes the size open; from then on the graph holds for all.
    assert backend != "count" or count.frame_count == 2


@pytest.mark.sweep
def test_a_mask_mod_that_holds_sizes_is_compiled_once_for_every_length():
    count = CompileCounter()

    def attend(query, key):
        rows, keys = query.size(2), key.size(2)
        mask = create_block_mask(
            lambda b, h, q, k: q - rows >= k - keys, None, None, rows, keys, device="cpu"
        )
        return flex_attention(query, key, key, block_mask=mask)

    compiled = torch.compile(attend, fullgraph=True, backend=count)
    for rows, keys in ((130, 260), (150, 300), (200, 420)):
        query, key = (torch.randn(1, 2, n, 16, dtype=torch.float64) for n in (rows, keys))
        visible = torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)
        expected = _dense(query, key, visible, lambda scores: scores)
        torch.testing.assert_close(compiled(query, key), expected)
    assert count.frame_count == 2


@pytest.mark.parametrize("batches", [None, 2])
def test_one_padding_length_is_that_of_every_batch(batches):
    def attend(x, lengths):
        mask = create_block_mask(masks.padding(lengths), batches, None, 150, 150, device="cpu")
        return flex_attention(x, x, x, block_mask=mask)

    x = torch.randn(2, 2, 150, 16, dtype=torch.float64)
    expected = _dense(x, x, torch.arange(150) < 70, lambda scores: scores)
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for function in (attend, compiled):
        torch.testing.assert_close(function(x, torch.tensor([70])), expected)


def test_making_a_mask_and_attending_with_it_is_one_graph_without_fullgraph():
    count = CompileCounter()

    def attend(x):
        mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 150, 150, device="cpu")
        return flex_attention(x, x, x, block_mask=mask), mask.bits

    x = torch.randn(1, 2, 150, 16, dtype=torch.float64)
    visible = torch.ones(150, 150, dtype=torch.bool).tril()
    out, bits = torch.compile(attend, backend=count)(x)
    torch.testing.assert_close(out, _dense(x, x, visible, lambda scores: scores))
    assert count.frame_count == 1
    assert torch.equal(bits, attend(x)[1])


def test_create_block_mask_itself_is_one_graph():
    count = CompileCounter()
    compiled = torch.compile(create_block_mask, backend=count)
    mask = compiled(lambda b, h, q, k: q >= k, 2, 4, 300, 300, device="cpu")
    expected = create_block_mask(lambda b, h, q, k: q >= k, 2, 4, 300, 300, device="cpu")
    assert count.frame_count == 1
    assert torch.equal(mask.to_dense(), expected.to_dense())
    assert torch.equal(mask.bits, expected.bits)


_COMPARED = {
    "==": lambda q, k, n: k == n,
    "!=": lambda q, k, n: n != k,
    "<": lambda q, k, n: k < n,
    "reversed <": lambda q, k, n: n < k,
    ">=": lambda q, k, n: q >= n - k,
    "float": lambda q, k, n: k > n / 2.5,
    "augmented": lambda q, k, n: _augmented(q, k, n),
    "both": lambda q, k, n: (k > 3) & (k < n) | (q == k),
}


def _augmented(q, k, n):
    distance = q - k
    distance += n
    distance *= 2
    return distance > 7


@pytest.mark.parametrize("name", _COMPARED)
def test_an_index_is_compared_with_an_open_size(name):
    compare = _COMPARED[name]

    @torch.compile(fullgraph=True, backend="eager", dynamic=True)
    def made(x):
        size = x.shape[0] - 3
        mask = create_block_mask(
            lambda b, h, q, k: compare(q, k, size), None, None, 9, 11, device="cpu"
        )
        return mask.bits, mask.full_kv_num_blocks, mask.kv_num_blocks

    for length in (8, 9, 13):
        expected = create_block_mask(
            lambda b, h, q, k, n=length - 3: compare(q, k, n), None, None, 9, 11, device="cpu"
        )
        for found, wanted in zip(
            made(torch.zeros(length)),
            (expected.bits, expected.full_kv_num_blocks, expected.kv_num_blocks),
            strict=True,
        ):
            assert torch.equal(found, wanted)


def _in_place_method(s, table):
    s.add_(1)
    return s


def _in_place_result(s, table):
    return s.add_(1) + s


def _item(s, table):
    table[0] = s
    return s


def _of_table(s, table):
    table += s
    return s


def _number(s, table):
    return s * float(s)


@pytest.mark.parametrize("mod", [_in_place_method, _in_place_result, _item, _of_table, _number])
def test_what_cannot_be_recorded_is_refused_in_a_graph_too(mod):
    table = torch.zeros(4)

    @torch.compile(fullgraph=True, backend="eager")
    def attend(x):
        return flex_attention(x, x, x, lambda s, b, h, q, k: mod(s, table))

    with pytest.raises(Exception, match=r"score_mod: .*cannot be recorded"):
        attend(torch.randn(1, 1, 4, 8))
    assert not table.any()
