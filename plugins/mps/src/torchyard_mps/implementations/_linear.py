"""Products with a weight: verdicts on requests, and what computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_mps._family import supports_machine

if TYPE_CHECKING:
    from torchyard_kernels.linear.contract import LinearRequest

__all__ = ["offered", "supports_linear"]

# As the component's contract has it, which is imported where it is used alone.
_LINEAR: Final = "linear/1"
_DTYPES: Final = ("float32", "bfloat16", "float16")
_FORMATS: Final = ("", "panels", "int8", "int4")
# What computes the contract on any device.
_OTHERS: Final = ("kernels.composed", "kernels.torch")


def offered(contract: str) -> Sequence[Implementation]:
    """Return what computes linear; nothing of another contract."""
    if contract != _LINEAR:
        return []
    return [Implementation(contract, "mps.metal", supports_linear, _load, before=_OTHERS)]


def supports_linear(request: LinearRequest, platform: Platform) -> Verdict:
    """Say whether the kernel computes a request; a function of these arguments alone."""
    verdict = supports_machine(request.device, platform)
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
    return Verdict.no(ReasonCode.OTHER, lacking, "use kernels.composed") if lacking else verdict


def _lacking_of_functions(request: LinearRequest) -> str:
    if not request.prologue and not request.epilogue:
        return ""
    from torchyard_mps.linear._functions import lacking_of_functions

    return lacking_of_functions(request)


def _load() -> Any:
    from torchyard_mps.linear import multiply

    return multiply
