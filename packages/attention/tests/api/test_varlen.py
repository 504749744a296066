"""varlen_attention: packed sequences that do not see each other."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_attention import AuxRequest, flex_attention, varlen_attention
from torchyard_attention._varlen._packed_blocks import packed_blocks
from torchyard_attention.visibility import dense_visibility

Q_LENGTHS = [5, 0, 1, 130, 40, 3]
K_LENGTHS = [5, 7, 300, 130, 0, 9]


def starts(lengths: list[int], dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=dtype)


def inputs(
    q_lengths: list[int], k_lengths: list[int], dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    query = torch.randn(sum(q_lengths), 4, 16).to(dtype)
    key = torch.randn(sum(k_lengths), 2, 16).to(dtype)
    return query, key, torch.randn(sum(k_lengths), 2, 24).to(dtype)


def visible(q_lengths: list[int], k_lengths: list[int], causal: bool) -> Tensor:
    blocks = [
        torch.ones(q, k, dtype=torch.bool).tril(k - q if causal else k)
        for q, k in zip(q_lengths, k_lengths, strict=True)
    ]
    return torch.block_diag(*blocks).bool()


def one_by_one(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    q_lengths: list[int],
    k_lengths: list[int],
    **how: Any,
) -> tuple[Tensor, Tensor]:
    """Attend each sequence in a call of its own."""
    outs, lses = [], []
    causal = how.pop("causal", False)
    parts = zip(query.split(q_lengths), key.split(k_lengths), value.split(k_lengths), strict=True)
    for q, k, v in parts:
        scores = q.double().transpose(0, 1) @ k.double().repeat_interleave(2, 1).permute(1, 2, 0)
        scores = scores * 0.25
        if causal:
            seen = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).tril(
                k.shape[0] - q.shape[0]
            )
            scores = scores.masked_fill(~seen, -math.inf)
        lse = scores.logsumexp(-1)
        weights = (scores - lse.masked_fill(lse == -math.inf, 0.0)[..., None]).exp()
        outs.append((weights @ v.double().repeat_interleave(2, 1).transpose(0, 1)).transpose(0, 1))
        lses.append(lse.transpose(0, 1))
    return torch.cat(outs), torch.cat(lses)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block_size", [(128, 128), (16, 64), (1, 128), (32, 20), (8, 3)])
@pytest.mark.parametrize(
    "lengths",
    [
        (Q_LENGTHS, K_LENGTHS),
        ([128, 256, 128], [128, 256, 128]),
        ([0, 0], [3, 4]),
        ([3], [0]),
        ([1] * 20, [50] * 20),
    ],
)
def test_blocks_say_what_each_query_sees(
    lengths: tuple[list[int], list[int]], block_size: tuple[int, int], causal: bool
) -> None:
    q_length, k_length = sum(lengths[0]), sum(lengths[1])
    blocks = packed_blocks(
        starts(lengths[0]),
        starts(lengths[1]),
        (q_length, k_length),
        (q_length, k_length),
        block_size,
        causal=causal,
    )
    dense = dense_visibility(blocks, q_length, k_length)

    assert torch.equal(dense[0, 0], visible(*lengths, causal))
    assert blocks.bits.flatten(1).any(dim=1).all(), "a hidden block is listed"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_packed_is_per_sequence(dtype: torch.dtype, causal: bool) -> None:
    query, key, value = inputs(Q_LENGTHS, K_LENGTHS, dtype)
    out, aux = varlen_attention(
        query,
        key,
        value,
        starts(Q_LENGTHS),
        starts(K_LENGTHS),
        130,
        300,
        causal=causal,
        enable_gqa=True,
        return_aux=AuxRequest(lse=True),
    )
    true = one_by_one(query, key, value, Q_LENGTHS, K_LENGTHS, causal=causal)

    eps = torch.finfo(dtype).eps
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), true[0], rtol=2 * eps, atol=8 * eps)
    torch.testing.assert_close(aux.lse.double(), true[1], rtol=1e-5, atol=1e-5)


def test_a_sequence_does_not_notice_its_companions() -> None:
    query, key, value = inputs(Q_LENGTHS, K_LENGTHS)
    where = starts(Q_LENGTHS), starts(K_LENGTHS)
    before = varlen_attention(query, key, value, *where, enable_gqa=True)
    key[5:312] = math.nan
    value[5:312] = math.inf
    after = varlen_attention(query, key, value, *where, enable_gqa=True)

    torch.testing.assert_close(after[:5], before[:5])
    torch.testing.assert_close(after[6:], before[6:])


def test_a_score_mod_counts_within_the_sequence() -> None:
    query, key, value = inputs(Q_LENGTHS, K_LENGTHS)
    slopes = torch.rand(len(Q_LENGTHS), 4)

    def distance(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + slopes[b, h] * (kv_idx - q_idx)

    out = varlen_attention(
        query,
        key,
        value,
        starts(Q_LENGTHS),
        starts(K_LENGTHS),
        score_mod=distance,
        enable_gqa=True,
    )
    parts = zip(query.split(Q_LENGTHS), key.split(K_LENGTHS), value.split(K_LENGTHS), strict=True)
    for number, (q, k, v) in enumerate(parts):
        alone = flex_attention(
            *(x.transpose(0, 1)[None] for x in (q, k, v)),
            score_mod=lambda s, b, h, i, j, n=number: s + slopes[n, h] * (j - i),
            enable_gqa=True,
        )
        mine = out.split(Q_LENGTHS)[number]
        torch.testing.assert_close(mine, alone[0].transpose(0, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_the_sequences(causal: bool) -> None:
    leaves = [x.double().requires_grad_() for x in inputs(Q_LENGTHS, K_LENGTHS)]
    out = varlen_attention(
        *leaves, starts(Q_LENGTHS), starts(K_LENGTHS), causal=causal, enable_gqa=True
    )
    true, _ = one_by_one(*leaves, Q_LENGTHS, K_LENGTHS, causal=causal)
    cotangent = torch.randn_like(true)
    found = torch.autograd.grad(out, leaves, cotangent)

    torch.testing.assert_close(found, torch.autograd.grad(true, leaves, cotangent))


def test_keys_are_divided_as_queries_where_nothing_else_is_said() -> None:
    query, key, value = inputs(Q_LENGTHS, Q_LENGTHS)
    where = starts(Q_LENGTHS, torch.int64)
    out = varlen_attention(query, key, value, where, enable_gqa=True)

    assert torch.equal(out, varlen_attention(query, key, value, where, where, enable_gqa=True))


@pytest.mark.parametrize("heads_first", [False, True])
def test_nested_tensors_come_back_nested(heads_first: bool) -> None:
    lengths = [5, 1, 130, 3]
    packed = inputs(lengths, lengths, torch.float64)
    where = starts(lengths, torch.int64)
    leaves = [x.requires_grad_() for x in packed]
    nested = [torch.nested.nested_tensor_from_jagged(x, where) for x in leaves]
    if heads_first:
        nested = [x.transpose(1, 2) for x in nested]
    out, aux = varlen_attention(
        *nested, causal=True, enable_gqa=True, return_aux=AuxRequest(lse=True)
    )
    expected = varlen_attention(*packed, where, causal=True, enable_gqa=True)
    rows = out.transpose(1, 2) if heads_first else out

    assert out.is_nested
    assert aux.lse.shape == out.shape[:3]
    torch.testing.assert_close(rows.values(), expected)
    cotangent = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(rows.values(), leaves, cotangent, retain_graph=True),
        torch.autograd.grad(expected, leaves, cotangent),
    )


def test_it_compiles_to_one_graph_for_all_lengths() -> None:
    compiled = torch.compile(varlen_attention, fullgraph=True, backend="aot_eager")
    for lengths in ([3, 10, 7], [15, 0, 5]):
        query, key, value = inputs(lengths, lengths)
        where = starts(lengths)
        expected = varlen_attention(query, key, value, where, causal=True, enable_gqa=True)
        out = compiled(query, key, value, where, causal=True, enable_gqa=True)
        torch.testing.assert_close(out, expected)


def test_building_blocks_holds_no_dense_mask() -> None:
    # A quarter of a million tokens: their pairs would be 64 GiB of booleans.
    lengths = [3000] * 87
    where, total = starts(lengths), sum(lengths)
    blocks = packed_blocks(where, where, (total, total), (total, total), (128, 128), causal=True)
    counts = blocks.kv_num_blocks + blocks.full_kv_num_blocks

    assert int(counts.max()) <= 3000 // 128 + 2
    assert blocks.bits.numel() < 16 * 2**20


GOOD: dict[str, Any] = {
    "query": torch.zeros(6, 2, 4),
    "key": torch.zeros(8, 2, 4),
    "value": torch.zeros(8, 2, 4),
    "cu_seqlens_q": torch.tensor([0, 2, 6]),
    "cu_seqlens_k": torch.tensor([0, 3, 8]),
}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"query": torch.zeros(1, 6, 2, 4)}, r"query: expected \[T, H, D\], got shape \[1, 6"),
        ({"value": torch.zeros(7, 2, 4)}, r"value: expected key's length and heads \[8, 2\]"),
        ({"key": torch.zeros(8, 2, 5)}, "key: expected head size 4, as query, got 5"),
        ({"cu_seqlens_q": None}, "cu_seqlens_q: expected where each sequence begins, got None"),
        ({"cu_seqlens_q": torch.tensor([0.0, 6.0])}, "cu_seqlens_q: expected int32 or int64"),
        ({"cu_seqlens_q": torch.tensor([0])}, r"cu_seqlens_q: expected shape \[N \+ 1\]"),
        ({"cu_seqlens_k": torch.tensor([0, 8])}, "cu_seqlens_k: expected 3 numbers"),
        ({"cu_seqlens_k": torch.tensor([0, 3, 9])}, "cu_seqlens_k: expected numbers from 0 to 8"),
        ({"cu_seqlens_q": torch.tensor([0, 7, 6])}, r"cu_seqlens_q: .* not fall, got \[7, 6\]"),
        ({"max_seqlen_q": 3}, "max_seqlen_q: expected at least 4, the longest .* got 3"),
        ({"max_seqlen_k": 4}, "max_seqlen_k: expected at least 5, the longest .* got 4"),
    ],
)
def test_a_wrong_argument_is_named(changed: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        varlen_attention(**(GOOD | changed))


def test_places_are_refused_for_nested_tensors_and_mixtures() -> None:
    where = torch.tensor([0, 2, 6])
    nested = torch.nested.nested_tensor_from_jagged(torch.zeros(6, 2, 4), where)

    with pytest.raises(ValueError, match="cu_seqlens_q: expected None for nested tensors"):
        varlen_attention(nested, nested, nested, where)
    with pytest.raises(TypeError, match="key: expected a jagged nested tensor, got a dense"):
        varlen_attention(nested, torch.zeros(6, 2, 4), nested)
    with pytest.raises(TypeError, match=r"key: expected a dense tensor .T, H, D., got a nested"):
        varlen_attention(torch.zeros(6, 2, 4), nested, nested, where)
