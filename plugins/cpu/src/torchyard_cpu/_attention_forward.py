"""From an attention call's tensors to the native kernel's addresses."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult, MaskBlocks
from torchyard_cpu import _isa, _native

__all__ = ["NativeForward"]


class NativeForward:
    """The forward, with a kernel chosen for each dtype.

    Args:
        isa: the instruction set to stay within; empty: all that the processor has.
    """

    def __init__(self, isa: str) -> None:
        features = frozenset(_native.cpu_features())
        if isa:
            features &= _isa.FEATURES[isa]
        self._kernels = {
            torch.float32: _kernel("float32", features),
            torch.bfloat16: _kernel("bfloat16", features),
        }

    def __call__(self, call: AttentionCall) -> AttentionResult:
        """Compute the outputs; working memory is two packed kv heads or a few more."""
        query, key, value = call.query, call.key, call.value
        batches, query_heads, rows, head_dim = query.shape
        key_heads, keys = key.shape[1:3]
        value_dim = value.shape[3]
        out = query.new_empty((batches, query_heads, rows, value_dim))
        lse = None
        if call.lse:
            lse = query.new_empty((batches, query_heads, rows), dtype=torch.float32)
        _native.attention_forward(
            self._kernels[query.dtype],
            (batches, query_heads, key_heads, rows, keys, head_dim, value_dim),
            _place(query),
            _place(key),
            _place(value),
            _place(out),
            0 if lse is None else lse.data_ptr(),
            call.scale,
            None if call.mask is None else _mask(call.mask),
            torch.get_num_threads(),
            False,
        )
        return AttentionResult(out, lse)


def _kernel(dtype: str, features: frozenset[str]) -> str:
    name = _native.select_kernel(dtype, features, None)
    assert name is not None, f"the table has a kernel of every dtype for any processor: {dtype}"
    return name


def _place(tensor: Tensor) -> tuple[int, int, int, int]:
    batch, head, row, _ = tensor.stride()
    return tensor.data_ptr(), batch, head, row


def _mask(mask: MaskBlocks) -> tuple[int, ...]:
    batches, heads, _ = mask.kv_num_blocks.shape
    return (
        *mask.block_size,
        batches,
        heads,
        mask.kv_num_blocks.data_ptr(),
        mask.kv_indices.data_ptr(),
        mask.full_kv_num_blocks.data_ptr(),
        mask.full_kv_indices.data_ptr(),
        mask.bits.data_ptr(),
        mask.first_partial.data_ptr(),
        mask.kv_indices.shape[3],
        mask.full_kv_indices.shape[3],
    )
