"""Layers that torch computes by kernels of a device alone."""

from __future__ import annotations

from torchyard_conformance import Subject, law
from torchyard_conformance._laws.device._tried import devices, try_check


@law("device.layers", profiles=("device",), cases=devices)
def test_convolutions_and_recurrent_layers_are_computed(subject: Subject, case: str) -> None:
    """Convolutions, LSTM and GRU compute what the CPU does, with gradients and without.

    Why: torch asks a device for these under names of its own, `convolution_overrideable` and
    `_thnn_fused_lstm_cell` among them, which no fallback to the CPU covers: a device that passes
    every other check still fails at the first such model.

    Fix: kernels of these operators, forward and backward; `csrc/layers.cpp` of the template has
    them in torch's own operators.
    """
    try_check(subject, "layers", case)
