"""Linear and recurrent layers, topk and maps of functions on NVIDIA GPUs: our kernels in Triton.

What torch and its libraries compute of these contracts, the component's own implementations call
already: ``kernels.torch`` and ``kernels.composed`` cuBLAS, ``kernels.aten`` cuDNN's recurrent
layers. ``torch.topk`` is no implementation of ``topk/1``, whose order of equal elements it leaves
open, and ``torch._weight_int4pack_mm`` none of ``linear/1``, whose packed layout it does not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Implementation, hookimpl
from torchyard_cuda._vendor import VENDOR
from torchyard_triton import implementations

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the kernels of a contract; imports no triton."""
    return implementations(contract, VENDOR)
