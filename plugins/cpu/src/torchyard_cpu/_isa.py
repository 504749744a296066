"""The instruction sets that kernels are compiled for, and what each needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["FEATURES", "best"]

_AVX512: Final = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})

# Best first within an architecture; of another architecture's no processor has the features. A test
# holds this against the native table of kernels.
FEATURES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
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
