"""Kernels are chosen by what the processor has, and by what it does well."""

from __future__ import annotations

import pytest
import torch

from torchyard_cpu import _isa, _native
from torchyard_cpu._features import features, features_for_arithmetic
from torchyard_cpu.attention._backward import NativeBackward
from torchyard_cpu.recurrent._forward import NativeRecurrent

_PAIRS = _isa.feature_sets()["avx512bf16"]


@pytest.mark.parametrize("slow", [False, True])
def test_slow_products_of_pairs_are_left_to_who_names_them(
    monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    monkeypatch.setattr(_native, "cpu_features", lambda: tuple(_PAIRS))
    monkeypatch.setattr(_native, "has_slow_bf16_pairs", lambda: slow)
    assert features("") == _PAIRS
    assert ("avx512_bf16" in features_for_arithmetic("")) is not slow
    assert features_for_arithmetic("avx512bf16") == _PAIRS
    assert features_for_arithmetic("avx2") == features("avx2") == frozenset()


# Kernels are chosen here, and none is run.
@pytest.mark.skipif(
    all(row[2] != "avx512bf16" for row in _native.backward_kernels()),
    reason="kernels for x86-64 are built for x86-64 only",
)
@pytest.mark.parametrize("native", [NativeBackward, NativeRecurrent])
@pytest.mark.parametrize("slow", [False, True])
def test_backward_and_recurrent_kernels_avoid_slow_pairs(
    monkeypatch: pytest.MonkeyPatch, native: type[NativeBackward | NativeRecurrent], slow: bool
) -> None:
    monkeypatch.setattr(_native, "cpu_features", lambda: tuple(_PAIRS))
    monkeypatch.setattr(_native, "has_slow_bf16_pairs", lambda: slow)
    assert _isa_of(native("")) == ("avx512" if slow else "avx512bf16")
    assert _isa_of(native("avx512bf16")) == "avx512bf16"


def _isa_of(native: NativeBackward | NativeRecurrent) -> str:
    chosen = native._kernels[torch.bfloat16]
    name = chosen if isinstance(chosen, str) else chosen[0]
    return name.rpartition("_")[2]
