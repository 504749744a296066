"""Attention's native forward: from a call's tensors to addresses, and the fast path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import torch
from torch import Tensor

from torchyard_attention.contract import (
    AttentionCall,
    AttentionRequest,
    AttentionResult,
    MaskBlocks,
    MaskKind,
    ScoreKind,
)
from torchyard_attention.fast_path import PathMask, PathScore
from torchyard_cpu import _native
from torchyard_cpu._addresses import address
from torchyard_cpu._features import features
from torchyard_cpu._tensor_reader import reads_tensors
from torchyard_cpu._tuning.machine_file import tuned
from torchyard_cpu._tuning.tunables import Tunables, frozen, with_options
from torchyard_cpu.attention import DTYPES
from torchyard_cpu.attention._path_scores import path_score
from torchyard_cpu.attention._score_program import native_score

__all__ = [
    "NativeAttentionPath",
    "NativeForward",
    "call_places",
    "decodes",
    "kernels_of",
    "tensor_place",
]

_Kernels: TypeAlias = Mapping[torch.dtype, tuple[str, Tunables]]
_Dims: TypeAlias = tuple[int, int, int, int, int, int, int]
_Place: TypeAlias = tuple[int, int, int, int]
_PagesPlace: TypeAlias = tuple[int, int, int, int, int]
_CallPlaces: TypeAlias = tuple[
    _Dims, _Place, _Place, _Place, _Place, int, float, tuple[int, ...] | None, Tunables
]

# In the order of native DType.
_PATH_DTYPES: Final = ("float32", "bfloat16", "float16")
_PATH_MASKS: Final = (MaskKind.NONE, MaskKind.CAUSAL, MaskKind.BLOCKS)


def decodes(query_heads: int, key_heads: int, rows: int) -> bool:
    """Return whether a call is decoding: so few rows per key head that packing would not pay."""
    return rows * (query_heads // max(1, key_heads)) <= _native.MAX_DECODE_ROWS


class NativeForward:
    """The forward, with a kernel chosen for each dtype.

    Args:
        isa: the instruction set to stay within; empty: all that the processor has.
    """

    # Keys and values in the pages of a cache are read in place.
    reads_pages: Final = True

    def __init__(self, isa: str) -> None:
        found = features(isa)
        self._kernels = kernels_of(_native.select_kernel, found)
        self._decode_kernels = kernels_of(_native.select_decode, found)

    def fast_path(self, request: AttentionRequest) -> NativeAttentionPath | None:
        """Return a path with nothing enabled; see ``torchyard.dispatch.OffersFastPath``."""
        return _attention_path(self._kernels, self._decode_kernels)

    def __call__(self, call: AttentionCall) -> AttentionResult:
        """Compute the outputs.

        Working memory is two packed kv heads or a few more; for decoding, which packs nothing, a
        state per 512 keys.

        Raises:
            IndexError: the score_mod of a visible pair takes an element that its captured tensor
                does not have.
        """
        query, key, value = call.query, call.key, call.value
        batches, query_heads, rows, _ = query.shape
        key_heads, keys = key.shape[1:3]
        out = query.new_empty((batches, query_heads, rows, value.shape[3]))
        lse = max_scores = None
        if call.lse:
            lse = query.new_empty((batches, query_heads, rows), dtype=torch.float32)
        if call.max_scores:
            max_scores = query.new_empty((batches, query_heads, rows), dtype=torch.float32)
        greatest = 0 if max_scores is None else address(max_scores, "max_scores")
        decoding = decodes(query_heads, key_heads, rows)
        kernel, tunables = (self._decode_kernels if decoding else self._kernels)[query.dtype]
        if call.options:
            tunables = with_options(tunables, call.options)
        places = call_places(query, key, value, out, lse, call.scale, call.mask, tunables)
        pages = _pages_place(call)
        threads = torch.get_num_threads()
        score = None
        if call.pages is not None and call.score_mod is not None and batches:
            keys = int(call.pages.lengths.max())
        if call.score_mod is not None and rows and keys and batches:
            score = native_score(call.score_mod, (batches, query_heads, rows, keys))
        attend = _native.attention_decode if decoding else _native.attention_forward
        attend(kernel, *places, score, greatest, threads, False, pages)
        return AttentionResult(out, lse, max_scores)


class NativeAttentionPath:
    """``torchyard_attention.fast_path.AttentionPath`` by the native module."""

    try_call: Callable[
        [
            Tensor,
            Tensor,
            Tensor,
            PathMask | None,
            float | None,
            bool,
            bool,
            PathScore | None,
        ],
        Tensor | tuple[Tensor, Tensor] | None,
    ]

    def __init__(self, functions: _native.PathFunctions) -> None:
        self.try_call, self._enable, self.clear = functions

    def enable(self, request: AttentionRequest, call: AttentionCall | None = None) -> bool:
        """Compute calls that make this request from now on, where native code alone can.

        Args:
            request: of a call.
            call: the call; not needed where it has no score_mod.
        """
        if (
            request.score is ScoreKind.GENERAL
            or request.dtype not in _PATH_DTYPES
            or not request.unit_stride
            or request.max_scores
            or request.grad
            or request.deterministic
            or request.page_size
        ):
            return True
        words = (
            _PATH_DTYPES.index(request.dtype),
            request.batch,
            request.q_heads,
            request.kv_heads,
            request.q_length,
            request.kv_length,
            request.head_dim,
            request.value_dim,
            _PATH_MASKS.index(request.mask),
            *request.block_size,
            int(request.lse),
        )
        if request.score is ScoreKind.NONE:
            self._enable(words)
        elif call is not None and call.score_mod is not None:
            sizes = (*call.query.shape[:3], call.key.shape[2])
            score = path_score(call.score_mod, sizes) if all(sizes) else None
            if score is not None:
                self._enable(words, call.score_mod.text, *score)
        return True


def _attention_path(kernels: _Kernels, decode_kernels: _Kernels) -> NativeAttentionPath | None:
    """Return a path with nothing enabled; None where native code cannot read torch's tensors."""
    if not reads_tensors():
        return None
    rows = tuple(
        (*kernels[dtype], *decode_kernels[dtype])
        for dtype in (getattr(torch, name) for name in _PATH_DTYPES)
    )
    return NativeAttentionPath(_native.attention_fast_path(rows))


def kernels_of(
    select: Callable[[str, frozenset[str], str | None], str | None], features: frozenset[str]
) -> dict[torch.dtype, tuple[str, Tunables]]:
    """Return the kernel of each dtype by one of _native's selections, and its tunables."""
    present = frozenset(_native.cpu_features())
    kernels = {}
    for dtype in DTYPES:
        name = select(dtype, features, None)
        assert name is not None, f"the table has a kernel of every dtype for any processor: {dtype}"
        kernels[getattr(torch, dtype)] = name, tuned(name, frozen(name.rpartition("_")[2]), present)
    return kernels


def call_places(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor | None,
    scale: float,
    mask: MaskBlocks | None,
    tunables: Tunables,
) -> _CallPlaces:
    """Return what each of _native's attention functions takes after the kernel's name."""
    batches, query_heads, rows, head_dim = query.shape
    _, key_heads, keys, value_dim = value.shape
    return (
        (batches, query_heads, key_heads, rows, keys, head_dim, value_dim),
        tensor_place(query, "query"),
        tensor_place(key, "key"),
        tensor_place(value, "value"),
        tensor_place(out, "out"),
        0 if lse is None else address(lse, "lse"),
        scale,
        None if mask is None else _mask_place(mask),
        tunables,
    )


def tensor_place(tensor: Tensor, name: str) -> _Place:
    """Return a tensor's address and the strides of batch, head and row."""
    batch, head, row, _ = tensor.stride()
    return address(tensor, name), batch, head, row


def _mask_place(mask: MaskBlocks) -> tuple[int, ...]:
    """Return a mask's sizes and addresses, as _native's functions take them."""
    counts = mask.kv_num_blocks.shape
    rows, keys = mask.block_size
    expected = (
        ("kv_num_blocks", mask.kv_num_blocks, counts, torch.int32),
        ("kv_indices", mask.kv_indices, (*counts, mask.kv_indices.shape[-1]), torch.int32),
        ("full_kv_num_blocks", mask.full_kv_num_blocks, counts, torch.int32),
        (
            "full_kv_indices",
            mask.full_kv_indices,
            (*counts, mask.full_kv_indices.shape[-1]),
            torch.int32,
        ),
        ("bits", mask.bits, (*mask.bits.shape[:1], rows, -(-keys // 8)), torch.uint8),
        ("first_partial", mask.first_partial, counts, torch.int64),
    )
    places = []
    for name, tensor, shape, dtype in expected:
        if tensor.dtype != dtype or tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(
                f"block_mask: {name}: expected a contiguous tensor of {dtype} of shape "
                f"{list(shape)}, got {tensor.dtype} of {list(tensor.shape)}; its tensors were "
                "changed after it was made: make a new mask instead"
            )
        places.append(address(tensor, f"block_mask: {name}"))
    return (
        *mask.block_size,
        *counts[:2],
        *places,
        mask.kv_indices.shape[3],
        mask.full_kv_indices.shape[3],
        mask.bits.shape[0],
    )


def _pages_place(call: AttentionCall) -> _PagesPlace | None:
    """Return addresses and sizes of the call's table of pages, as _native's functions take them."""
    if call.pages is None:
        return None
    return (
        address(call.pages.table, "pages: table"),
        call.pages.table.shape[1],
        address(call.pages.lengths, "pages: lengths"),
        call.key.shape[2],
        call.key.shape[0],
    )
