"""The first k of rows: verdicts on requests, and what computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_mps._family import supports_machine

if TYPE_CHECKING:
    from torchyard_kernels.topk.contract import TopKRequest

__all__ = ["offered", "supports_topk"]

# As the component's contract has them, which is imported where it is used alone.
_TOPK: Final = "topk/1"
_DTYPES: Final = (*("float32", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64"),)
# Places within a row are counted with 32 bits, and a threadgroup counts beyond a row's end.
_MOST: Final = 2**31 - 2**16


def offered(contract: str) -> Sequence[Implementation]:
    """Return what computes topk; nothing of another contract."""
    if contract != _TOPK:
        return []
    return [Implementation(contract, "mps.metal", supports_topk, _load, before=("kernels.sort",))]


def supports_topk(request: TopKRequest, platform: Platform) -> Verdict:
    """Say whether the kernels compute a request; a function of these arguments alone."""
    verdict = supports_machine(request.device, platform)
    if not verdict.supported:
        return verdict
    if request.dtype not in _DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE, f"orders {', '.join(_DTYPES)}; got {request.dtype}", "cast x"
        )
    if request.length > _MOST:
        return Verdict.no(
            ReasonCode.SHAPE, f"expected rows of at most {_MOST} elements, got {request.length}"
        )
    return verdict


def _load() -> Any:
    from torchyard_mps.topk import select

    return select
