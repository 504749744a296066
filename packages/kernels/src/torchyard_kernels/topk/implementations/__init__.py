"""What this package itself offers for ``topk/1``."""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_kernels.topk.contract import DTYPES, TOPK, TopKKernel, TopKRequest

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the sort and the reference; imports no torch."""
    if contract != TOPK:
        return []
    return [
        Implementation(TOPK, "kernels.sort", _supports_sort, _load_sort),
        Implementation(TOPK, "kernels.reference", _supports_reference, _load_reference),
    ]


def _supports_sort(request: TopKRequest, platform: Platform) -> Verdict:
    return _dtype(request) or Verdict.yes("stable sort of whole rows")


def _supports_reference(request: TopKRequest, platform: Platform) -> Verdict:
    return _dtype(request) or Verdict.yes("one row at a time, in Python")


def _dtype(request: TopKRequest) -> Verdict | None:
    if request.dtype in DTYPES:
        return None
    return Verdict.no(
        ReasonCode.DTYPE, f"orders {', '.join(DTYPES)}; got {request.dtype}", "cast x"
    )


def _load_sort() -> TopKKernel:
    from torchyard_kernels.topk.implementations.sort import portable_topk

    return portable_topk


def _load_reference() -> TopKKernel:
    from torchyard_kernels.topk.reference import reference_topk

    return reference_topk
