"""The implementations of the recurrent contracts that need nothing but torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_kernels.recurrent.contract import (
    BACKWARD,
    FORWARD,
    Backward,
    Forward,
    RecurrentRequest,
)

__all__ = ["torchyard_implementations"]

_DTYPES: Final = ("float16", "bfloat16", "float32", "float64")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers; imports no torch."""
    if contract == FORWARD:
        return [
            Implementation(FORWARD, "kernels.aten", _supports_composed, _load_aten),
            Implementation(FORWARD, "kernels.steps", _supports, _load_steps),
            Implementation(FORWARD, "kernels.reference", _supports_composed, _load_reference),
        ]
    if contract == BACKWARD:
        return [Implementation(BACKWARD, "kernels.steps", _supports, _load_steps_backward)]
    return []


def _supports(request: RecurrentRequest, platform: Platform) -> Verdict:
    if request.dtype not in _DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE,
            f"computes {', '.join(_DTYPES)}; got {request.dtype}",
            "cast the inputs",
        )
    return Verdict.yes("one product for all inputs, then one per step")


def _supports_composed(request: RecurrentRequest, platform: Platform) -> Verdict:
    verdict = _supports(request, platform)
    if not verdict.supported:
        return verdict
    if request.reserve:
        return Verdict.no(
            ReasonCode.GRAD,
            "leaves gradients to torch, and the op records its own",
            "call it outside of compiled and exported programs",
        )
    return Verdict.yes("operations that torch differentiates")


def _load_aten() -> Forward:
    from torchyard_kernels.recurrent.implementations.aten import Aten

    return Aten()


def _load_steps() -> Forward:
    from torchyard_kernels.recurrent.implementations.steps import steps_forward

    return steps_forward


def _load_reference() -> Forward:
    from torchyard_kernels.recurrent.reference import Reference

    return Reference()


def _load_steps_backward() -> Backward:
    from torchyard_kernels.recurrent.implementations.steps_backward import steps_backward

    return steps_backward
