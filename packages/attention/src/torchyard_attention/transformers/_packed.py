"""The mask of sequences that a model packed into one row, as transformers' kernels get it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from torchyard_attention._block_mask import BlockMask
from torchyard_attention._torch_compat import version_of
from torchyard_attention._varlen._api import packed_mask
from torchyard_attention.transformers._errors import UnsupportedArgumentError
from torchyard_attention.transformers._prepared import PreparedMask

__all__ = ["mask_of_packed"]

# By where queries begin, then by where keys do: a model gives the same tensors to all layers.
_KEPT: Any = WeakTensorKeyDictionary()


class _Key(NamedTuple):
    """The key of a cached mask, and the tensors' versions when it was made."""

    versions: tuple[int, int]
    lengths: tuple[int, int]
    causal: bool
    window: int | None


def mask_of_packed(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    is_causal: bool | None,
    sliding_window: int | None,
) -> PreparedMask:
    """Return the mask under which packed sequences do not see each other.

    The last query of a sequence is at its last key: it sees all of them where the layer is causal,
    or the last ``sliding_window``.

    Args:
        module: the layer.
        query: [1, Hq, Sq, D], the queries of all N sequences.
        key: [1, Hkv, Sk, D], their keys, those of a cache included.
        starts_q, starts_k: integers [N + 1]: where each sequence begins, and the end.
        is_causal: whether later keys are hidden; None: what the layer says.
        sliding_window: how many keys a query sees at most; None: all.

    Raises:
        UnsupportedArgumentError: an argument does not fit; names it.
    """
    for name, starts in (("cu_seq_lens_q", starts_q), ("cu_seq_lens_k", starts_k)):
        if not isinstance(starts, Tensor):
            raise UnsupportedArgumentError(
                f"{name}: expected a tensor, got {type(starts).__name__}: {type(module).__name__} "
                f"does not hand its arguments to its cache, so it cannot generate in continuous "
                f"batches; use model.generate"
            )
    if query.shape[0] != 1 or starts_q.shape != starts_k.shape or starts_q.ndim != 1:
        raise UnsupportedArgumentError(
            f"cu_seq_lens_q, cu_seq_lens_k: expected [N + 1] of both for one row of packed "
            f"sequences, got {list(starts_q.shape)} and {list(starts_k.shape)} for "
            f"{query.shape[0]} rows"
        )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if sliding_window is not None and not causal:
        raise UnsupportedArgumentError(
            "sliding_window: expected a causal layer for sequences that are packed without a mask, "
            f"got {type(module).__name__}, which is not"
        )
    lengths = (query.shape[2], key.shape[2])
    blocks = _blocks(starts_q, starts_k, lengths, causal, sliding_window)
    return PreparedMask((1, *lengths), 0, lengths[1], blocks, packed=True)


def _blocks(
    starts_q: Tensor, starts_k: Tensor, lengths: tuple[int, int], causal: bool, window: int | None
) -> BlockMask:
    keep = not (torch.compiler.is_compiling() or starts_q.is_inference() or starts_k.is_inference())
    if not keep:
        return packed_mask(starts_q, starts_k, lengths, lengths, causal=causal, window=window)
    wanted = _Key((version_of(starts_q), version_of(starts_k)), lengths, causal, window)
    kept = _KEPT.setdefault(starts_q, WeakTensorKeyDictionary()).setdefault(starts_k, {})
    if any(entry.versions != wanted.versions for entry in kept):
        kept.clear()
    if wanted not in kept:
        kept[wanted] = packed_mask(
            starts_q, starts_k, lengths, lengths, causal=causal, window=window
        )
    found: BlockMask = kept[wanted]
    return found
