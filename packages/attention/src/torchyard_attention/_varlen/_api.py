"""``varlen_attention``: attention within each of several sequences that lie one after another."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments as checks
from torchyard_attention._api import AuxOutput, AuxRequest, ScoreModFunction, flex_attention
from torchyard_attention._block_mask import BlockMask
from torchyard_attention._torch_compat import ragged_dim
from torchyard_attention._validation import check_call, check_flags
from torchyard_attention._varlen._packed_blocks import packed_blocks

_INTEGERS: Final = (torch.int32, torch.int64)
_KEYS_PER_BLOCK: Final = 128
_MOST_ROWS_PER_BLOCK: Final = 128

# No tensor is longer.
_MOST: Final = (1 << 63) - 1


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    causal: bool = False,
    score_mod: ScoreModFunction | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_aux: AuxRequest | None = None,
    dropout_p: float = 0.0,
) -> Any:
    """Compute attention within each sequence of a packed batch; sequences do not see each other.

    Takes packed tensors and the places where sequences begin, or torch's jagged nested tensors and
    no places. A sequence may have no queries or no keys. Differentiable as flex_attention is.

    Args:
        query: [Tq, Hq, D], the queries of all N sequences one after another, any strides; or a
            jagged nested tensor [N, j, Hq, D] or [N, Hq, j, D].
        key: [Tk, Hkv, D]; or nested, of query's layout.
        value: [Tk, Hkv, V]; or nested, of query's layout.
        cu_seqlens_q: int32 or int64 [N + 1]: where each sequence's queries begin, and Tq at last.
        cu_seqlens_k: likewise for keys and values; None: as cu_seqlens_q.
        max_seqlen_q, max_seqlen_k: no sequence is longer. Checked, and not needed.
        causal: hide later keys. The ends of a sequence's queries and keys are aligned: its last
            query sees all of its keys, as when new queries attend to a cache of keys.
        score_mod: as for flex_attention; ``b`` is the number of the sequence, ``q_idx`` and
            ``kv_idx`` count from the sequence's own first query and key. It may be evaluated, with
            no effect, on a query and a key of two sequences.
        scale: multiplies the raw scores; None: 1 / sqrt(D).
        enable_gqa: whether Hkv may be smaller than Hq, and divide it.
        return_aux: which auxiliary outputs to return, as (out, AuxOutput); each [Tq, Hq], or nested
            as query without its last dimension.
        dropout_p: as for flex_attention.

    Returns:
        out [Tq, Hq, V] in query's dtype, or nested as query; or (out, AuxOutput).

    Raises:
        ValueError, TypeError: an argument does not fit; names it.
        ProgramError: score_mod does something that cannot be recorded.
    """
    of = "varlen_attention"
    if return_aux is not None:
        check_flags(of, return_aux, None)
    causal = checks.boolean(of, "causal", causal)
    if getattr(query, "is_nested", False):
        if cu_seqlens_q is not None or cu_seqlens_k is not None:
            name = "cu_seqlens_q" if cu_seqlens_q is not None else "cu_seqlens_k"
            raise ValueError(
                f"{name}: expected None for nested tensors, which know where sequences begin"
            )
        packed = {
            name: _unnested(name, tensor, query)
            for name, tensor in (("query", query), ("key", key), ("value", value))
        }
        cu_seqlens_q, cu_seqlens_k = _offsets(query), _offsets(key)
        ends = _offsets(value)
        if ends is not cu_seqlens_k and not torch.equal(ends, cu_seqlens_k):
            raise ValueError("value: expected sequences as long as key's, got other offsets")
        tensors = packed["query"], packed["key"], packed["value"]
    else:
        tensors = query, key, value
    named = dict(zip(("query", "key", "value"), tensors, strict=True))
    check_call(of, named, score_mod, scale, enable_gqa, dims=3, shape="[T, H, D]")
    if max_seqlen_q is not None:
        max_seqlen_q = checks.integer(of, "max_seqlen_q", max_seqlen_q, least=0, most=_MOST)
    if max_seqlen_k is not None:
        max_seqlen_k = checks.integer(of, "max_seqlen_k", max_seqlen_k, least=0, most=_MOST)
    starts_q, starts_k = _check(*tensors, cu_seqlens_q, cu_seqlens_k)
    lengths = (tensors[0].shape[0], tensors[1].shape[0])
    mask = packed_mask(
        starts_q,
        starts_k,
        lengths,
        (
            lengths[0] if max_seqlen_q is None else max_seqlen_q,
            lengths[1] if max_seqlen_k is None else max_seqlen_k,
        ),
        causal=causal,
    )
    if score_mod is not None:
        score_mod = _per_sequence(score_mod, starts_q, starts_k, lengths)
    q, k, v = (tensor.transpose(0, 1).unsqueeze(0) for tensor in tensors)
    result = flex_attention(
        q,
        k,
        v,
        score_mod=score_mod,
        block_mask=mask,
        scale=scale,
        enable_gqa=enable_gqa,
        return_aux=return_aux,
        dropout_p=dropout_p,
    )
    out, aux = (result, None) if return_aux is None else result
    out = _as_query(out[0].transpose(0, 1), query)
    if aux is None:
        return out
    return out, AuxOutput(
        *(None if item is None else _as_query(item[0].transpose(0, 1), query) for item in aux)
    )


def packed_mask(
    starts_q: Tensor,
    starts_k: Tensor,
    lengths: tuple[int, int],
    longest: tuple[int, int],
    *,
    causal: bool,
    window: int | None = None,
) -> BlockMask:
    """Return the mask of packed sequences; the arguments are those of ``packed_blocks``."""
    # About one sequence per row of blocks, so that short ones do not share keys that few of the
    # rows see.
    mean = -(-lengths[0] // max(1, starts_q.shape[0] - 1))
    rows = 1
    while rows < mean and rows < _MOST_ROWS_PER_BLOCK:
        rows *= 2
    blocks = packed_blocks(
        starts_q,
        starts_k,
        lengths,
        longest,
        (rows, _KEYS_PER_BLOCK),
        causal=causal,
        window=window,
    )
    return BlockMask(
        seq_lengths=lengths,
        kv_num_blocks=blocks.kv_num_blocks,
        kv_indices=blocks.kv_indices,
        full_kv_num_blocks=blocks.full_kv_num_blocks,
        full_kv_indices=blocks.full_kv_indices,
        bits=blocks.bits,
        first_partial=blocks.first_partial,
        BLOCK_SIZE=blocks.block_size,
    )


def _per_sequence(
    score_mod: ScoreModFunction, starts_q: Tensor, starts_k: Tensor, lengths: tuple[int, int]
) -> ScoreModFunction:
    """Return a score_mod of packed places that calls one of places within a sequence."""
    q_sequence, q_place = _places(starts_q, lengths[0])
    _, k_place = _places(starts_k, lengths[1])

    def packed(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score_mod(score, q_sequence[q_idx], h, q_place[q_idx], k_place[kv_idx])

    return packed


def _places(starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    starts = starts.long()
    packed = torch.arange(length, device=starts.device)
    sequence = torch.searchsorted(starts, packed, right=True) - 1
    return sequence, packed - starts[sequence]


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
) -> tuple[Tensor, Tensor]:
    if value.shape[:2] != key.shape[:2]:
        raise ValueError(
            f"value: expected key's length and heads {list(key.shape[:2])}, got "
            f"{list(value.shape[:2])}"
        )
    if cu_seqlens_q is None:
        raise ValueError(
            "cu_seqlens_q: expected where each sequence begins, got None; pass it, or nested "
            "tensors"
        )
    if cu_seqlens_k is None:
        cu_seqlens_k = cu_seqlens_q
    for name, starts in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        checks.tensor("varlen_attention", name, starts, dtypes=_INTEGERS)
        if starts.ndim != 1 or starts.shape[0] < 2:
            raise ValueError(
                f"{name}: expected shape [N + 1] with N of at least 1, got {list(starts.shape)}"
            )
        if starts.device != query.device:
            raise ValueError(f"{name}: expected query's device {query.device}, got {starts.device}")
    if cu_seqlens_k.shape != cu_seqlens_q.shape:
        raise ValueError(
            f"cu_seqlens_k: expected {cu_seqlens_q.shape[0]} numbers, as cu_seqlens_q, got "
            f"{cu_seqlens_k.shape[0]}"
        )
    return cu_seqlens_q, cu_seqlens_k


def _unnested(name: str, tensor: Any, query: Tensor) -> Tensor:
    """Return a nested tensor's rows as [T, H, D]."""
    checks.instance("varlen_attention", name, tensor, Tensor, "a jagged nested tensor")
    if not tensor.is_nested or tensor.layout != torch.jagged:
        got = "a dense tensor" if not tensor.is_nested else f"layout {tensor.layout}"
        raise TypeError(f"{name}: expected a jagged nested tensor, got {got}")
    if tensor.lengths() is not None:
        raise ValueError(f"{name}: expected rows without gaps between them; call contiguous()")
    ragged = ragged_dim(tensor)
    if tensor.ndim != 4 or ragged not in (1, 2) or ragged != ragged_dim(query):
        raise ValueError(
            f"{name}: expected [N, j, H, D] or [N, H, j, D], all three alike, got shape "
            f"{list(tensor.shape)}"
        )
    rows: Tensor = tensor.values()
    return rows if ragged == 1 else rows.transpose(0, 1)


def _as_query(rows: Tensor, query: Tensor) -> Tensor:
    """Return [T, H, ...] in query's form: nested where that is."""
    if not query.is_nested:
        return rows
    nested = torch.nested.nested_tensor_from_jagged(rows, _offsets(query))
    return nested if ragged_dim(query) == 1 else nested.transpose(1, 2)


def _offsets(nested: Any) -> Tensor:
    offsets: Tensor = nested.offsets()
    return offsets
