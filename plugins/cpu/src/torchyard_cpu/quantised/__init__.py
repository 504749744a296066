"""cpu.quantised: products with weights of 8 and 4 bits by native kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl, plugin_setting
from torchyard_cpu import _isa
from torchyard_kernels.linear.contract import LINEAR, Linear, LinearRequest
from torchyard_kernels.linear.contract.quantised import BITS, GROUPS

__all__ = ["DTYPES", "NAME", "features_of", "supports", "torchyard_implementations"]

NAME: Final = "cpu.quantised"
# In the order of native QuantisedElement.
DTYPES: Final = ("float32", "bfloat16", "float16")

# Processors that multiply pairs of bfloat16 multiply words of bytes too.
_MORE: Final = {isa: frozenset({"avx512_vnni"}) for isa in ("amx", "avx512bf16")}


def features_of(isa: str, present: frozenset[str]) -> frozenset[str]:
    """Return the features to stay within, of those that a processor has.

    Args:
        isa: a key of ``_isa.feature_sets()``; empty: all that are present.
        present: the processor's.
    """
    return present & (_isa.feature_sets()[isa] | _MORE.get(isa, frozenset())) if isa else present


def supports(request: LinearRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether a kernel supports the request, within an instruction set or any."""
    if request.weight not in BITS:
        known = " and ".join(BITS)
        return Verdict.no(
            ReasonCode.LAYOUT, f"multiplies weights of {known}, got {request.weight or 'plain'}"
        )
    if request.dtype not in DTYPES:
        return Verdict.no(ReasonCode.DTYPE, f"computes {', '.join(DTYPES)}; got {request.dtype}")
    if request.prologue or request.epilogue:
        return Verdict.no(ReasonCode.OTHER, "runs no function before or after the product")
    group = dict(request.weight_options).get("group", 0)
    if group not in GROUPS:
        return Verdict.no(ReasonCode.LAYOUT, f"group: expected one of {GROUPS}, got {group}")
    refused = _isa.refusal(isa, platform.cpu_features)
    if refused is not None:
        return refused
    return Verdict.yes(f"native kernel within {isa or _isa.best(platform.cpu_features)}")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the one implementation, held to TORCHYARD_CPU_ISA where that is set."""
    isa = plugin_setting("cpu", "isa")
    return [Implementation(LINEAR, NAME, partial(supports, isa=isa), partial(_load, isa))]


def _load(isa: str) -> Linear:
    from torchyard_cpu.quantised._product import NativeQuantised

    return NativeQuantised(isa)
