"""cpu.native: products with a weight, by native kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from torchyard import (
    Implementation,
    Platform,
    ReasonCode,
    Verdict,
    hookimpl,
    plugin_setting,
)
from torchyard_cpu import _isa
from torchyard_kernels.linear.contract import LINEAR, Linear, LinearRequest

__all__ = ["DEVICES", "DTYPES", "FORMATS", "NAME", "supports", "torchyard_implementations"]

NAME: Final = "cpu.native"
DEVICES: Final = ("cpu",)
DTYPES: Final = ("float32", "bfloat16", "float16")
# Formats of packed weights; "" is a plain tensor.
FORMATS: Final = ("", "panels")


def supports(request: LinearRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether a kernel supports the request.

    Args:
        request: the call.
        platform: the machine.
        isa: the instruction set to stay within, a key of ``_isa.feature_sets()``; empty: the best
            that the machine has.
    """
    if request.device not in DEVICES:
        return Verdict.no(
            ReasonCode.DEVICE, f"expected tensors on {' or '.join(DEVICES)}, got {request.device}"
        )
    if request.dtype not in DTYPES:
        known = f"{', '.join(DTYPES[:-1])} and {DTYPES[-1]}"
        return Verdict.no(ReasonCode.DTYPE, f"computes {known}; got {request.dtype}")
    if request.weight not in FORMATS:
        known = ", ".join(filter(None, FORMATS))
        return Verdict.no(
            ReasonCode.LAYOUT, f"reads plain weights and {known}; got {request.weight}"
        )
    refused = _isa.refusal(isa, platform.cpu_features)
    if refused is not None:
        return refused
    how = f"native kernel within {isa or _isa.best(platform.cpu_features)}"
    if not request.prologue and not request.epilogue:
        return Verdict.yes(how)
    from torchyard_cpu.linear._functions import lacking

    lacks = lacking(request)
    if lacks:
        return Verdict.no(ReasonCode.OTHER, f"{lacks}: not computed natively")
    return Verdict.yes(f"{how}, functions run while a tile lies in a cache")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the contract's one implementation, held to TORCHYARD_CPU_ISA where that is set."""
    isa = plugin_setting("cpu", "isa")
    return [Implementation(LINEAR, NAME, partial(supports, isa=isa), partial(_load, isa))]


def _load(isa: str) -> Linear:
    from torchyard_cpu.linear._product import NativeLinear

    return NativeLinear(isa)
