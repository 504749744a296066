"""The features of this processor that kernels are chosen by."""

from __future__ import annotations

from torchyard_cpu import _isa, _native

__all__ = ["features", "features_for_arithmetic"]


def features(isa: str) -> frozenset[str]:
    """Return what the processor has.

    Args:
        isa: the instruction set to stay within; empty: all.
    """
    found = frozenset(_native.cpu_features())
    return found & _isa.feature_sets()[isa] if isa else found


def features_for_arithmetic(isa: str) -> frozenset[str]:
    """Likewise, for kernels whose pace arithmetic sets and that have no matrix tiles.

    Without products of bfloat16 pairs where those of float32 are faster, unless an instruction set
    is named.
    """
    found = features(isa)
    return found if isa or not _native.has_slow_bf16_pairs() else found - {"avx512_bf16"}
