"""The instruction sets that kernels are compiled for, and what each needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from torchyard import ReasonCode, Verdict

__all__ = ["best", "feature_sets", "refusal"]


@cache
def feature_sets() -> Mapping[str, frozenset[str]]:
    """Return what each instruction set needs, best first within an architecture.

    The list is the native module's (``base/isa/isas.inc``), of every architecture: no processor has
    the features of another's.
    """
    # Here, since a device's plugins are listed without loading native code.
    from torchyard_cpu import _native

    rows = {name: frozenset(features) for name, features in _native.instruction_sets()}
    return MappingProxyType(rows)


@cache
def best(cpu_features: frozenset[str]) -> str:
    """Return the best instruction set that a processor with these features can run."""
    return next(isa for isa, needed in feature_sets().items() if needed <= cpu_features)


@cache
def refusal(isa: str, cpu_features: frozenset[str]) -> Verdict | None:
    """Return why the instruction set that TORCHYARD_CPU_ISA names cannot be used; None if it can.

    Args:
        isa: its value; empty where the variable is not set.
        cpu_features: what the processor has.
    """
    if isa and isa not in feature_sets():
        return Verdict.no(
            ReasonCode.ISA,
            f"TORCHYARD_CPU_ISA: expected one of {', '.join(feature_sets())}, got {isa}",
            "correct or unset the variable",
        )
    if isa and not feature_sets()[isa] <= cpu_features:
        missing = ", ".join(sorted(feature_sets()[isa] - cpu_features))
        return Verdict.no(
            ReasonCode.ISA,
            f"TORCHYARD_CPU_ISA asks for {isa}, and this processor lacks {missing}",
            "unset the variable",
        )
    return None
