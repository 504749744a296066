"""Half-precision and quantised linear, topk, recurrent cells, foreach_map and execution graphs."""

from __future__ import annotations

from torchyard_kernels import nn
from torchyard_kernels._accelerate._api import accelerate
from torchyard_kernels._accelerate._report import (
    Accelerated,
    AccelerateError,
    Change,
    Gain,
    Report,
    Skipped,
)
from torchyard_kernels.graphs._api import capture
from torchyard_kernels.graphs._errors import GraphBucketError, GraphParityError, UncapturableError
from torchyard_kernels.graphs._graph import Graph, GraphMemory
from torchyard_kernels.graphs._padding import Padding
from torchyard_kernels.linear._api import bmm, linear, matmul
from torchyard_kernels.linear._errors import PackedGradientError, PackedWriteError
from torchyard_kernels.linear._tuning import Tuned, max_autotune
from torchyard_kernels.linear._weights.packed_weight import PackedWeight
from torchyard_kernels.linear._weights.quantize import quantize
from torchyard_kernels.pointwise._api import foreach_map, foreach_map_
from torchyard_kernels.pointwise._errors import InPlaceGradientError
from torchyard_kernels.recurrent._api import gru, lstm, rnn
from torchyard_kernels.recurrent._outputs import LstmOutput, LstmState, RecurrentOutput
from torchyard_kernels.recurrent._packed import PackedRecurrent
from torchyard_kernels.topk._api import (
    TopK,
    kthvalue,
    masked_topk,
    partial_sort,
    segmented_topk,
    topk,
)

__all__ = [
    "AccelerateError",
    "Accelerated",
    "Change",
    "Gain",
    "Graph",
    "GraphBucketError",
    "GraphMemory",
    "GraphParityError",
    "InPlaceGradientError",
    "LstmOutput",
    "LstmState",
    "PackedGradientError",
    "PackedRecurrent",
    "PackedWeight",
    "PackedWriteError",
    "Padding",
    "RecurrentOutput",
    "Report",
    "Skipped",
    "TopK",
    "Tuned",
    "UncapturableError",
    "accelerate",
    "bmm",
    "capture",
    "foreach_map",
    "foreach_map_",
    "gru",
    "kthvalue",
    "linear",
    "lstm",
    "masked_topk",
    "matmul",
    "max_autotune",
    "nn",
    "partial_sort",
    "quantize",
    "rnn",
    "segmented_topk",
    "topk",
]
