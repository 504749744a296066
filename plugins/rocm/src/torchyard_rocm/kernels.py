"""Linear and recurrent layers, topk and maps on AMD GPUs: our kernels in Triton."""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Implementation, hookimpl
from torchyard_rocm._vendor import VENDOR
from torchyard_triton import implementations

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the kernels of a contract; imports no triton."""
    return implementations(contract, VENDOR)
