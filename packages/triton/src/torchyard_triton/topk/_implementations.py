"""The selection as a vendor's implementation of ``topk/1``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_kernels.topk.contract import (
    DTYPES,
    TOPK,
    TopKCall,
    TopKKernel,
    TopKRequest,
    TopKResult,
)
from torchyard_triton._machine import supports_machine
from torchyard_triton._vendor import Vendor

__all__ = ["offered", "supports_topk"]

# Places within a row are counted with 32 bits, and a block is counted beyond its end.
_MOST: Final = 2**31 - 2**16


def offered(vendor: Vendor) -> Sequence[Implementation]:
    """Return the implementation on a vendor's device."""
    supports = partial(supports_topk, vendor=vendor)
    return [Implementation(TOPK, f"{vendor.name}.triton", supports, partial(_load, vendor))]


def supports_topk(request: TopKRequest, platform: Platform, *, vendor: Vendor) -> Verdict:
    """Say whether the kernels compute a request; a function of these arguments alone."""
    verdict = supports_machine(request.device, platform, vendor)
    if not verdict.supported:
        return verdict
    if request.dtype not in DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE, f"orders {', '.join(DTYPES)}; got {request.dtype}", "cast x"
        )
    if request.length > _MOST:
        return Verdict.no(
            ReasonCode.SHAPE,
            f"expected rows of at most {_MOST} elements, got {request.length}",
        )
    return verdict


def _load(vendor: Vendor) -> TopKKernel:
    from torchyard_triton.topk._selection import select
    from torchyard_triton.topk._ways import ways_of

    def compute(call: TopKCall) -> TopKResult:
        return select(call, ways=ways_of(vendor.current()))

    return compute
