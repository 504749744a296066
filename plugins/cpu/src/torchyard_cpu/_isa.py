"""The instruction sets that kernels are compiled for, and what each needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from torchyard import ReasonCode, Verdict

__all__ = ["FEATURES", "best", "refusal"]

_AVX512: Final = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})

# Best first within an architecture; of another architecture's no processor has the features. A test
# holds this against the native table of kernels.
FEATURES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "amx": _AVX512 | {"avx512_bf16", "amx_tile", "amx_bf16"},
        "avx512bf16": _AVX512 | {"avx512_bf16"},
        "avx512": _AVX512,
        "avx2": frozenset({"avx2", "fma", "f16c"}),
        "neonbf16": frozenset({"asimd", "bf16"}),
        "neon": frozenset({"asimd"}),
        "scalar": frozenset(),
    }
)


def best(cpu_features: frozenset[str]) -> str:
    """Return the best instruction set that a processor with these features can run."""
    return next(isa for isa, needed in FEATURES.items() if needed <= cpu_features)


def refusal(isa: str, cpu_features: frozenset[str]) -> Verdict | None:
    """Return why the instruction set that TORCHYARD_CPU_ISA names cannot be used; None if it can.

    Args:
        isa: its value; empty where the variable is not set.
        cpu_features: what the processor has.
    """
    if isa and isa not in FEATURES:
        return Verdict.no(
            ReasonCode.ISA,
            f"TORCHYARD_CPU_ISA: expected one of {', '.join(FEATURES)}, got {isa}",
            "correct or unset the variable",
        )
    if isa and not FEATURES[isa] <= cpu_features:
        missing = ", ".join(sorted(FEATURES[isa] - cpu_features))
        return Verdict.no(
            ReasonCode.ISA,
            f"TORCHYARD_CPU_ISA asks for {isa}, and this processor lacks {missing}",
            "unset the variable",
        )
    return None
