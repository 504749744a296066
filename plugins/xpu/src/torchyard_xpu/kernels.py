"""Attention, linear and recurrent layers, topk and maps on Intel GPUs: our kernels in Triton."""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Implementation, hookimpl
from torchyard_triton import implementations
from torchyard_xpu._vendor import VENDOR

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the kernels of a contract; imports no triton."""
    return implementations(contract, VENDOR)
