"""The launches that are compiled: each kernel with programs that differ in what they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, MaskBlocks
from torchyard_programs import trace
from torchyard_triton._launch import Launch
from torchyard_triton.attention._backward import BackwardPasses
from torchyard_triton.attention._decode import DecodePasses, Packed
from torchyard_triton.attention._forward import ForwardPasses
from torchyard_triton.attention._launch import SCORE_INPUTS, Tiles

__all__ = ["PROGRAMS", "launches"]

_HEADS, _KV_HEADS, _LENGTH = 8, 2, 256
_BLOCK = 128


@dataclass(frozen=True, slots=True, eq=False)
class _Mod:
    """A recorded program, as the contract's ScoreMod; it is compiled and never applied."""

    text: str
    captured: tuple[Tensor, ...]

    def apply(self, *arguments: Any) -> Tensor:
        raise NotImplementedError("a specimen is compiled, not computed")


@dataclass(frozen=True, slots=True, eq=False)
class _Pages:
    """Where keys are in a cache, as the contract's KeyPages."""

    table: Tensor
    lengths: Tensor


def _mod(function: Callable[..., Any]) -> _Mod:
    inputs = tuple(
        (item.name, item.dtype if isinstance(item.dtype, torch.dtype) else None)
        for item in SCORE_INPUTS
    )
    text, captured = trace(function, "score_mod", inputs, torch.device("cpu"))
    return _Mod(text, tuple(captured))


def _causal() -> MaskBlocks:
    """Return the causal mask's blocks; bits of zeros, which no compiler reads."""
    blocks = _LENGTH // _BLOCK
    order = torch.arange(blocks, dtype=torch.int32)
    row = order[None, None]
    return MaskBlocks(
        block_size=(_BLOCK, _BLOCK),
        kv_num_blocks=torch.ones((1, 1, blocks), dtype=torch.int32),
        kv_indices=row[..., None].contiguous(),
        full_kv_num_blocks=row.contiguous(),
        full_kv_indices=order.expand(1, 1, blocks, blocks).contiguous(),
        bits=torch.zeros((blocks, _BLOCK, _BLOCK // 8), dtype=torch.uint8),
        first_partial=order.long()[None, None].contiguous(),
    )


def _alibi() -> _Mod:
    slopes = torch.ones(_HEADS, requires_grad=False)
    return _mod(lambda s, b, h, q, k: s + slopes[h] * (k - q))


def _document() -> _Mod:
    ids = torch.zeros(_LENGTH, dtype=torch.int32)
    return _mod(lambda s, b, h, q, k: (ids[q] == ids[k]) & (q >= k))


def _bias() -> _Mod:
    table = torch.zeros((_HEADS, 2 * _LENGTH))
    return _mod(lambda s, b, h, q, k: s + table[h, q - k + _LENGTH])


# Name -> score_mod, mask's program, whether there are block lists.
PROGRAMS: Final[Mapping[str, tuple[Callable[[], _Mod] | None, Callable[[], _Mod] | None, bool]]] = {
    "none": (None, None, False),
    "causal": (None, None, True),
    "alibi": (_alibi, None, True),
    "softcap": (lambda: _mod(lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0)), None, False),
    "document": (None, _document, True),
    "bias": (_bias, None, True),
}


def _paged(call: AttentionCall) -> AttentionCall:
    """Return a call whose keys are in pages of 16."""
    pool = call.key.transpose(1, 2).reshape(-1, 16, *call.key.shape[1::2]).transpose(1, 2)
    table = torch.zeros((1, _LENGTH // 16), dtype=torch.int32)
    pages: Any = _Pages(table, torch.zeros(1, dtype=torch.int32))
    return replace(call, key=pool, value=pool, pages=pages)


def launches(
    program: str,
    *,
    head_dim: int = 128,
    dtype: torch.dtype = torch.bfloat16,
    tiles: Mapping[str, Tiles] | None = None,
) -> Iterator[tuple[str, Callable[[], Launch]]]:
    """Yield the name of each kernel and what builds its launch.

    Args:
        program: a key of PROGRAMS.
        head_dim, dtype: of query, key and value.
        tiles: by kernel's name; the default where it has none.
    """
    score, mask, lists = PROGRAMS[program]
    score_mod = None if score is None else score()
    mask_mod = None if mask is None else mask()
    query = torch.zeros((1, _HEADS, _LENGTH, head_dim), dtype=dtype)
    key = torch.zeros((1, _KV_HEADS, _LENGTH, head_dim), dtype=dtype)
    wanted = () if score_mod is None else (True,) * len(score_mod.captured)
    call = AttentionCall(
        *(query, key, key.clone(), score_mod, _causal() if lists else None, head_dim**-0.5),
        lse=True,
        max_scores=False,
        captured_grad=wanted,
    )
    lse = torch.zeros((1, _HEADS, _LENGTH))
    marks = torch.zeros(1, dtype=torch.int8)
    starts = torch.zeros(3, dtype=torch.int32)
    chosen = {} if tiles is None else tiles

    def passes() -> BackwardPasses:
        return BackwardPasses(call, query, lse, query, None, mask_mod, chosen)

    def outputs() -> ForwardPasses:
        of = chosen.get("attention_forward", Tiles())
        return ForwardPasses(call, mask_mod, None, of)

    yield "attention_forward", lambda: outputs().launch()
    if lists:
        yield "attention_exact_forward", lambda: outputs().exact_launch()
    few = replace(call, query=query[:, :, :2], mask=None)

    def decoding(of: AttentionCall) -> DecodePasses:
        return DecodePasses(of, None, mask_mod, None, chosen.get("attention_decode", Tiles()))

    yield "attention_decode", lambda: decoding(few).launch()
    yield "attention_decode_pages", lambda: decoding(_paged(few)).launch()
    packed = Packed(starts, starts, _LENGTH, _LENGTH, causal=True)
    yield (
        "attention_varlen",
        lambda: DecodePasses(
            replace(call, mask=None),
            packed,
            mask_mod,
            None,
            chosen.get("attention_decode", Tiles()),
        ).launch(),
    )
    if program == "none":
        yield "attention_merge", lambda: decoding(few).merge_launch()
    yield "attention_delta", lambda: passes().delta_launch()
    yield (
        "attention_query_gradient",
        lambda: passes().query_launch(query, marks),
    )
    yield (
        "attention_key_gradient",
        lambda: passes().key_launch(key, key, marks),
    )
    if lists:
        yield (
            "attention_exact_query_gradient",
            lambda: passes().query_launch(query, marks, exact=True),
        )
        yield (
            "attention_exact_key_gradient",
            lambda: passes().key_launch(key, key, marks, exact=True),
        )
    if wanted:
        parts, places = torch.zeros((1, 1)), torch.zeros((1, 1), dtype=torch.int64)

        def site() -> Launch:
            of = passes()
            assert of.program is not None
            return of.site_launch(of.program.sites[0], parts, places, 0, 0)

        yield "attention_captured_gradient", site
