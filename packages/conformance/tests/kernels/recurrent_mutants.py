"""Recurrent kernels with one planted fault each, and the law that is meant for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch

from torchyard_kernels.recurrent.contract import (
    RecurrentCall,
    RecurrentGradients,
    RecurrentResult,
)

from .sound_kernels import SoundBackward, SoundKernel, SoundRecurrent

__all__ = ["MUTANTS"]


class DirectionsSwapped(SoundRecurrent):
    """Puts out the second direction first."""

    def compute(self, call: RecurrentCall) -> RecurrentResult:
        found: RecurrentResult = super().compute(call)
        if not call.bidirectional or call.num_layers < 2 or call.lengths is not None:
            return found
        # Gradients would tell too.
        if call.input.requires_grad:
            return found
        first, second = found.output.chunk(2, dim=2)
        return replace(found, output=torch.cat((second, first), dim=2))


class PaddingTimesZero(SoundRecurrent):
    """Gives steps that are not there a weight of 0, and multiplies."""

    def compute(self, call: RecurrentCall) -> RecurrentResult:
        found: RecurrentResult = super().compute(call)
        if call.lengths is None:
            return found
        return replace(found, output=found.output + 0 * call.input.sum(dim=(0, 2))[:, None])


class BadSequenceSpreads(SoundRecurrent):
    """Looks for the greatest gate of the whole batch."""

    def compute(self, call: RecurrentCall) -> RecurrentResult:
        found: RecurrentResult = super().compute(call)
        if call.lengths is not None:
            return found
        return replace(found, hidden=found.hidden + 0 * call.input.max())


class TimeLiesOutside(SoundRecurrent):
    """Takes the steps of the input to follow one another in memory."""

    def compute(self, call: RecurrentCall) -> RecurrentResult:
        strides = torch.empty(call.input.shape, device="meta").stride()
        given = call.input
        if not given.requires_grad:
            given = given.as_strided(given.shape, strides, given.storage_offset())
        return super().compute(replace(call, input=given))  # type: ignore[no-any-return]


class StateIsDetached(SoundRecurrent):
    """Starts from a copy of the state."""

    def compute(self, call: RecurrentCall) -> RecurrentResult:
        found: RecurrentResult = super().compute(replace(call, hidden=call.hidden.detach()))
        return found


class GateTwice(SoundRecurrent):
    """Records the first gate's weight a second time."""

    def compute(self, call: RecurrentCall) -> RecurrentResult:
        found: RecurrentResult = super().compute(call)
        more = call.weights[0].w_ih.sum()
        return replace(found, output=found.output + (more - more.detach()))


class PaddedGradients(SoundBackward):
    """Gives steps that are not there a gradient of 0 times what they hold."""

    def compute(self, call: RecurrentCall, *given: Any) -> RecurrentGradients:
        found: RecurrentGradients = super().compute(call, *given)
        return replace(found, input=found.input + 0 * call.input)


MUTANTS: Final[tuple[tuple[type[SoundKernel], str], ...]] = (
    (DirectionsSwapped, "truth.kernels-match-reference"),
    (PaddingTimesZero, "numerics.recurrent-padding"),
    (BadSequenceSpreads, "numerics.kernels-not-finite"),
    (TimeLiesOutside, "truth.kernels-any-memory"),
    (StateIsDetached, "truth.recurrent-recorded-gradients"),
    (GateTwice, "truth.recurrent-recorded-gradients"),
    (PaddedGradients, "numerics.recurrent-padding"),
)
