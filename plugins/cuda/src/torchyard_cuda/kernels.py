"""Linear and recurrent layers, topk and maps of functions on NVIDIA GPUs: our kernels in Triton.

What torch and its libraries compute of these contracts, the component's own implementations call
already: ``kernels.torch`` and ``kernels.composed`` cuBLAS, ``kernels.aten`` cuDNN's recurrent
layers. ``torch.topk`` is no implementation of ``topk/1``, whose order of equal elements it leaves
open, and ``torch._weight_int4pack_mm`` none of ``linear/1``, whose packed layout it does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_cuda._vendor import VENDOR
from torchyard_triton import implementations

__all__ = ["torchyard_implementations"]

_LINEAR: Final = "linear/1"
_QUANTISED: Final = ("int8", "int4")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the kernels of a contract; imports no triton.

    ``cuda.quantised`` is the same product as ``cuda.triton`` for a list to name: of quantised
    weights it is ahead of torch's operators, which unpack a weight at every call, and of others
    behind them.
    """
    offered = implementations(contract, VENDOR)
    if contract != _LINEAR:
        return offered
    (product,) = offered
    supports = partial(_supports_quantised, product.supports)
    return [product, replace(product, name="cuda.quantised", supports=supports)]


def _supports_quantised(
    supports: Callable[[Any, Platform], Verdict], request: Any, platform: Platform
) -> Verdict:
    if request.weight in _QUANTISED:
        return supports(request, platform)
    got = request.weight or "a plain one"
    return Verdict.no(
        ReasonCode.PURPOSE,
        f"multiplies by weights of {' and '.join(_QUANTISED)}; got {got}",
        "cuda.triton multiplies by others too",
    )
