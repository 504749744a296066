"""The map as a vendor's implementation of ``pointwise/1``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_kernels.pointwise.contract import POINTWISE, PointwiseKernel, PointwiseRequest
from torchyard_triton._machine import supports_machine
from torchyard_triton._vendor import Vendor

__all__ = ["offered", "supports_pointwise"]


def offered(vendor: Vendor) -> Sequence[Implementation]:
    """Return the implementation on a vendor's device."""
    supports = partial(supports_pointwise, vendor=vendor)
    return [Implementation(POINTWISE, f"{vendor.name}.triton", supports, _load)]


def supports_pointwise(request: PointwiseRequest, platform: Platform, *, vendor: Vendor) -> Verdict:
    """Say whether the kernels compute a request; a function of these arguments alone."""
    verdict = supports_machine(request.device, platform, vendor)
    if not verdict.supported:
        return verdict
    from torchyard_programs import UnsupportedProgramError
    from torchyard_triton.pointwise._kernel import STORED, program_of

    given = [name for name, ndim in (*request.inputs, *request.captured) if ndim >= 0]
    unknown = next((name for name in (*given, *request.out) if name not in STORED), "")
    if unknown:
        return Verdict.no(ReasonCode.DTYPE, f"computes {', '.join(STORED)}; got {unknown}")
    try:
        program_of(replace(request, groups=1))
    except UnsupportedProgramError as error:
        return Verdict.no(ReasonCode.OTHER, f"the function has {error}, which is not computed")
    return verdict


def _load() -> PointwiseKernel:
    from torchyard_triton.pointwise._map import compute

    return compute
