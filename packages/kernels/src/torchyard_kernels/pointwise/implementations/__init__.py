"""What this package itself offers for ``pointwise/1``."""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Implementation, Platform, Verdict, hookimpl
from torchyard_kernels.pointwise.contract import POINTWISE, PointwiseKernel, PointwiseRequest

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return torch's operations and the reference; imports no torch."""
    if contract != POINTWISE:
        return []
    return [
        Implementation(POINTWISE, "kernels.map", _supports_map, _load_map),
        Implementation(POINTWISE, "kernels.map_reference", _supports_reference, _load_reference),
    ]


def _supports_map(request: PointwiseRequest, platform: Platform) -> Verdict:
    return Verdict.yes("torch's operations, one tensor at a time")


def _supports_reference(request: PointwiseRequest, platform: Platform) -> Verdict:
    return Verdict.yes("torch's operations in float64")


def _load_map() -> PointwiseKernel:
    from torchyard_kernels.pointwise.implementations.map import portable_pointwise

    return portable_pointwise


def _load_reference() -> PointwiseKernel:
    from torchyard_kernels.pointwise.reference import reference_pointwise

    return reference_pointwise
