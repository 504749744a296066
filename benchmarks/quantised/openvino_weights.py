"""A matrix among OpenVINO's constants, as its CPU plugin knows one of 8 or 4 bits.

It runs where openvino and numpy are, without torch.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

__all__ = ["matrix"]

_MOST: Final = {8: 127, 4: 7}


def matrix(weight: Any, bits: int, group: int) -> tuple[Any, int]:
    """Return the node of a matrix, float32 to those who multiply by it, and the bytes it holds.

    Args:
        weight: array [N, K], float32 or float16.
        bits: of a code, 8 or 4; 16 keeps the weight as it is.
        group: how many neighbours of K share a scale; 0 for one scale per row.
    """
    import numpy as np

    ov: Any = importlib.import_module("openvino")
    ops: Any = importlib.import_module("openvino.opset13")

    if bits == 16:
        return ops.convert(ops.constant(weight.astype(np.float16)), ov.Type.f32), weight.size * 2
    rows, columns = weight.shape
    grouped = weight.reshape(rows, -1, group) if group else weight
    scales = (np.abs(grouped).max(-1, keepdims=True) / _MOST[bits]).astype(np.float16)
    codes = np.rint(grouped / scales.astype(np.float32)).clip(-_MOST[bits], _MOST[bits])
    if bits == 8:
        node = ops.convert(ops.constant(codes.astype(np.int8)), ov.Type.f16)
    else:
        # The first of two in the low half.
        pairs = (codes + 8).astype(np.uint8)
        packed = np.ascontiguousarray(pairs[..., 0::2] | pairs[..., 1::2] << 4)
        held = ov.Tensor(packed, list(codes.shape), ov.Type.u4)
        eight = ops.constant(np.full((1, 1, 1), 8, np.float16))
        node = ops.subtract(
            ops.convert(ov.op.Constant(held, shared_memory=False), ov.Type.f16), eight
        )
    node = ops.multiply(node, ops.constant(scales))
    if group:
        node = ops.reshape(node, ops.constant(np.array([rows, columns])), special_zero=False)
    return ops.convert(node, ov.Type.f32), rows * columns * bits // 8 + scales.nbytes
