"""A step of transformers' continuous batching whose keys are read in place, in pages."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from torchyard_attention._api import AuxOutput, AuxRequest, ScoreModFunction
from torchyard_attention._mods._recordings import recorded
from torchyard_attention._mods._trace import lse_dtype
from torchyard_attention._ops._arguments import score_mod_of
from torchyard_attention._paged._op import paged_forward
from torchyard_attention._torch_compat import version_of
from torchyard_attention._validation import parse_options
from torchyard_attention.contract import AttentionCall
from torchyard_attention.pages import KeyPages

__all__ = ["PAGES", "Pages", "pages_of_step"]

# The argument by which a layer hands the pages from its cache to its attention.
PAGES: Final = "torchyard_pages"

# What of transformers' cache is read; another transformers may have it otherwise.
_CACHE: Final = ("layer_to_allocator",)
_ALLOCATOR: Final = (
    *("get_cache_for_block_table", "index", "layer_type", "supports_block_table"),
    "tokens_per_page",
)

# Tables by the places that a step reads, which are one tensor for all layers of a kind.
_KEPT: Any = WeakTensorKeyDictionary()


class Pages(NamedTuple):
    """A layer's pages, and those of each sequence of a step.

    Attributes:
        key: [pages, Hkv, page size, D].
        value: [pages, Hkv, page size, V].
        table: int32 [B, N]: each sequence's pages, in order; any behind the last.
        lengths: int32 [B]: each sequence's keys.
    """

    key: Tensor
    value: Tensor
    table: Tensor
    lengths: Tensor

    def attend(
        self,
        query: Tensor,
        score_mod: ScoreModFunction | None,
        scale: float | None,
        kernel_options: dict[str, Any] | None,
        implementation: str | None,
        return_aux: AuxRequest | None = None,
    ) -> Any:
        """Compute attention of one query per sequence over all of its keys.

        Args:
            query: [1, Hq, B, D].
            score_mod: reads no index.
            scale, kernel_options, implementation, return_aux: as of ``flex_attention``.

        Returns:
            [1, Hq, B, V], or (that, AuxOutput).
        """
        score = None
        if score_mod is not None:
            score = score_mod_of(*recorded(score_mod, lse_dtype(query), query.device))
        aux = return_aux or AuxRequest()
        call = AttentionCall(
            query.permute(2, 1, 0, 3),
            self.key,
            self.value,
            score,
            None,
            1.0 / math.sqrt(query.shape[3]) if scale is None else float(scale),
            aux.lse,
            aux.max_scores,
            parse_options("flex_attention", kernel_options),
            pages=KeyPages(self.table, self.lengths),
        )
        result = paged_forward(call, implementation or "")
        out, lse, most = (
            None if part is None else part.transpose(0, 2)
            for part in (result.out, result.lse, result.max_scores)
        )
        return out if return_aux is None else (out, AuxOutput(lse, most))


def pages_of_step(
    cache: Any, key: Tensor, value: Tensor, layer: int, kwargs: dict[str, Any]
) -> Pages | None:
    """Write a layer's new keys and values into their pages, and return these.

    Args:
        cache: transformers' PagedAttentionCache.
        key, value: [1, Hkv, T, D or V], of the T new positions of all sequences.
        layer: whose.
        kwargs: what transformers says of the step, as of its cache's ``update``.

    Returns:
        None, and nothing is written, where a sequence has several queries or none of its keys are
        in the cache, where the layer's window is in the order of the keys, or where transformers
        keeps its cache in another form.
    """
    if torch.compiler.is_compiling() or not all(hasattr(cache, name) for name in _CACHE):
        return None
    allocator = cache.layer_to_allocator[layer]
    if not all(hasattr(allocator, name) for name in _ALLOCATOR):
        return None
    starts_q, starts_k = kwargs["cu_seq_lens_q"], kwargs["cu_seq_lens_k"]
    sequences = starts_q.shape[0] - 1
    if (
        not allocator.supports_block_table
        or kwargs.get("block_table") is not None
        or not isinstance(starts_k, dict)
        or kwargs["max_length_q"] != 1
        or key.shape[2] != sequences
    ):
        return None
    read, write = (kwargs[name][allocator.index] for name in ("read_index", "write_index"))
    if read.numel() == 0 or write.numel() != sequences:
        return None
    pools = allocator.get_cache_for_block_table(layer)
    for pool, new in zip(pools, (key, value), strict=True):
        pool.flatten(0, 1).index_copy_(0, write, new[0].transpose(0, 1))
    table = _table(read, starts_k[allocator.layer_type], allocator.tokens_per_page)
    keys, values = (pool.transpose(1, 2) for pool in pools)
    return Pages(keys, values, *table)


def _table(read: Tensor, starts: Tensor, page_size: int) -> tuple[Tensor, Tensor]:
    """Return each sequence's pages and how many keys it has, from the places that are read.

    Args:
        read: int64 [T]: the place of each key, one sequence after another.
        starts: [B + 1]: where each sequence begins in it.
        page_size: positions of a page, which are places one after another.
    """
    # The tensor is new in each step, and its memory is not.
    version = version_of(read)
    kept = _KEPT.get(read)
    if kept is not None and kept[0] == version >= 0:
        found: tuple[Tensor, Tensor] = kept[1]
        return found
    lengths = starts.diff().to(torch.int32)
    count = -(-int(lengths.max()) // page_size)
    firsts = starts[:-1, None].long() + torch.arange(count, device=read.device) * page_size
    table = (read[firsts.clamp(max=read.shape[0] - 1)] // page_size).to(torch.int32)
    _KEPT[read] = version, (table, lengths)
    return table, lengths
