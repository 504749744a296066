"""The product as a vendor's implementation of ``linear/1``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_kernels.linear.contract import LINEAR, Linear, LinearCall, LinearRequest
from torchyard_triton._machine import supports_machine
from torchyard_triton._vendor import Vendor

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["offered", "supports_linear"]

_DTYPES: Final = ("float32", "bfloat16", "float16")
_FORMATS: Final = ("", "panels", "int8", "int4")


def offered(vendor: Vendor) -> Sequence[Implementation]:
    """Return the implementation on a vendor's device."""
    supports = partial(supports_linear, vendor=vendor)
    return [Implementation(LINEAR, f"{vendor.name}.triton", supports, partial(_load, vendor))]


def supports_linear(request: LinearRequest, platform: Platform, *, vendor: Vendor) -> Verdict:
    """Say whether the kernels compute a request; a function of these arguments alone."""
    verdict = supports_machine(request.device, platform, vendor)
    if not verdict.supported:
        return verdict
    if request.dtype not in _DTYPES:
        known = f"{', '.join(_DTYPES[:-1])} and {_DTYPES[-1]}"
        return Verdict.no(ReasonCode.DTYPE, f"computes {known}; got {request.dtype}")
    if request.weight not in _FORMATS:
        known = ", ".join(filter(None, _FORMATS))
        return Verdict.no(ReasonCode.LAYOUT, f"reads plain weights, {known}; got {request.weight}")
    if dict(request.weight_options).get("activation"):
        return Verdict.no(
            ReasonCode.LAYOUT,
            "rounds no rows of x, and the weight's option activation asks for it",
            "pack the weight with activation=0",
        )
    lacking = _lacking_of_functions(request)
    return Verdict.no(ReasonCode.OTHER, lacking) if lacking else verdict


def _lacking_of_functions(request: LinearRequest) -> str:
    """Return what the request's functions need and kernels lack; empty where they compute them."""
    if not request.prologue and not request.epilogue:
        return ""
    from torchyard_programs import UnsupportedProgramError
    from torchyard_triton.linear._functions import check_functions

    try:
        check_functions(request)
    except UnsupportedProgramError as error:
        return f"a function has {error}, which the kernels do not compute"
    return ""


def _load(vendor: Vendor) -> Linear:
    from torchyard_triton.linear._product import kind_of, multiply
    from torchyard_triton.linear._tiles import linear_tiles

    def compute(call: LinearCall) -> Tensor:
        return multiply(call, tiles=linear_tiles(vendor.current(), kind_of(call)))

    return compute
