"""Half-precision and quantised linear, topk, recurrent cells, foreach_map and execution graphs."""

from __future__ import annotations

from torchyard_kernels._linear._api import bmm, linear, matmul
from torchyard_kernels._linear._errors import PackedGradientError
from torchyard_kernels._linear._packed_weight import PackedWeight
from torchyard_kernels._linear._quantize import quantize
from torchyard_kernels._topk._api import (
    TopK,
    kthvalue,
    masked_topk,
    partial_sort,
    segmented_topk,
    topk,
)

__all__ = [
    "PackedGradientError",
    "PackedWeight",
    "TopK",
    "bmm",
    "kthvalue",
    "linear",
    "masked_topk",
    "matmul",
    "partial_sort",
    "quantize",
    "segmented_topk",
    "topk",
]
