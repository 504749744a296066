"""Functions over lists of tensors: verdicts on requests, and what computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_mps._family import supports_machine

if TYPE_CHECKING:
    from torchyard_kernels.pointwise.contract import PointwiseRequest

__all__ = ["offered", "supports_pointwise"]

# As the component's contract has it, which is imported where it is used alone.
_POINTWISE: Final = "pointwise/1"
_DTYPES: Final = (
    *("float32", "float16", "bfloat16", "bool"),
    *("uint8", "int8", "int16", "int32", "int64"),
)
# What computes the contract on any device.
_OTHERS: Final = ("kernels.map",)


def offered(contract: str) -> Sequence[Implementation]:
    """Return what computes functions over lists; nothing of another contract."""
    if contract != _POINTWISE:
        return []
    return [Implementation(contract, "mps.metal", supports_pointwise, _load, before=_OTHERS)]


def supports_pointwise(request: PointwiseRequest, platform: Platform) -> Verdict:
    """Say whether the kernel computes a request; a function of these arguments alone."""
    verdict = supports_machine(request.device, platform)
    if not verdict.supported:
        return verdict
    given = [name for name, ndim in (*request.inputs, *request.captured) if ndim >= 0]
    unknown = next((name for name in (*given, *request.out) if name not in _DTYPES), "")
    if unknown:
        return Verdict.no(
            ReasonCode.DTYPE, f"computes {', '.join(_DTYPES)}; got {unknown}", "convert the tensors"
        )
    from torchyard_mps.pointwise._program import lacking_of_map, program_of
    from torchyard_programs import UnsupportedProgramError

    try:
        program_of(request)
    except UnsupportedProgramError as error:
        return Verdict.no(
            ReasonCode.OTHER,
            f"the function has {error}, which the kernel does not compute",
            "use kernels.map, which is chosen where this is not",
        )
    lacking = lacking_of_map(request)
    if lacking:
        return Verdict.no(ReasonCode.SHAPE, lacking, "split the function")
    return verdict


def _load() -> Any:
    from torchyard_mps.pointwise import compute

    return compute
