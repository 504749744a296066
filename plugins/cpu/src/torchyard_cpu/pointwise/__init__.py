"""cpu.native: pointwise functions over lists of tensors, by the native interpreter of programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from torchyard import Claim, Implementation, Platform, ReasonCode, Verdict, hookimpl, plugin_setting
from torchyard_cpu import _isa
from torchyard_kernels.pointwise.contract import PointwiseKernel, PointwiseRequest

__all__ = ["supports", "torchyard_implementations"]

_NAME: Final = "cpu.native"
_DEVICES: Final = ("cpu",)
# Every element is computed alike, wherever pieces of work begin.
_CLAIMS: Final = frozenset({Claim.DETERMINISTIC})


def supports(request: PointwiseRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether the interpreter supports the request.

    Args:
        request: the call.
        platform: the machine.
        isa: the instruction set to stay within, a key of ``_isa.feature_sets()``; empty: the best
            that the machine has.
    """
    if request.device not in _DEVICES:
        return Verdict.no(
            ReasonCode.DEVICE, f"expected tensors on {' or '.join(_DEVICES)}, got {request.device}"
        )
    refused = _isa.refusal(isa, platform.cpu_features)
    if refused is not None:
        return refused
    from torchyard_cpu.pointwise._map import lacking

    lacks = lacking(request)
    if lacks:
        return Verdict.no(ReasonCode.OTHER, f"the function {lacks}, which is not computed natively")
    return Verdict.yes(f"native interpreter within {isa or _isa.best(platform.cpu_features)}")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the contract's one implementation, held to TORCHYARD_CPU_ISA where that is set."""
    isa = plugin_setting("cpu", "isa")
    answer = partial(supports, isa=isa)
    return [Implementation(contract, _NAME, answer, partial(_load, isa), claims=_CLAIMS)]


def _load(isa: str) -> PointwiseKernel:
    from torchyard_cpu.pointwise._map import NativePointwise

    return NativePointwise(isa)
