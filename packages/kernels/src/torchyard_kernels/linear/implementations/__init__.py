"""The implementations of ``linear/1`` in torch, for every device."""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_kernels.linear.contract import LINEAR, Linear, LinearRequest

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return torch's own operators, compiled and not, and the reference as the last resort.

    No list names ``kernels.compiled``, whose first calls take seconds: it is chosen where it is
    demanded, or was measured to be the fastest.
    """
    return [
        Implementation(LINEAR, "kernels.composed", _supports_composed, _load_composed),
        Implementation(LINEAR, "kernels.torch", _supports_torch, _load_torch),
        Implementation(LINEAR, "kernels.compiled", _supports_compiled, _load_compiled),
        Implementation(LINEAR, "kernels.reference", _supports_reference, _load_reference),
    ]


def _supports_composed(request: LinearRequest, platform: Platform) -> Verdict:
    if not request.prologue and not request.epilogue:
        return Verdict.no(ReasonCode.OTHER, "there is no function before or after the product")
    return Verdict.yes("functions by torch's operators, composed with the product")


def _supports_torch(request: LinearRequest, platform: Platform) -> Verdict:
    if request.prologue or request.epilogue:
        return Verdict.no(ReasonCode.OTHER, "runs no function before or after the product")
    how = "torch's own product"
    return Verdict.yes(f"{how}, unpacks the weight at every call" if request.weight else how)


def _supports_compiled(request: LinearRequest, platform: Platform) -> Verdict:
    if request.weight:
        return Verdict.no(ReasonCode.LAYOUT, f"compiles plain weights; got {request.weight}")
    return Verdict.yes("the whole call by torch.compile, whose first takes seconds")


def _supports_reference(request: LinearRequest, platform: Platform) -> Verdict:
    return Verdict.yes("in float64")


def _load_composed() -> Linear:
    from torchyard_kernels.linear.implementations.composed import compute

    return compute


def _load_torch() -> Linear:
    from torchyard_kernels.linear.implementations.torch_product import product

    return product


def _load_compiled() -> Linear:
    from torchyard_kernels.linear.implementations.compiled import compute

    return compute


def _load_reference() -> Linear:
    from torchyard_kernels.linear.reference import reference

    return reference
