"""The steps of one layer and direction, as launches."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.recurrent.contract import RecurrentCall
from torchyard_mps._launch import Launch
from torchyard_mps.recurrent._source import source_of

__all__ = ["LayerSteps"]

# As in metal/recurrent/forward.metal.
_ROWS: Final = 8
_UNITS: Final = 4
_THREADS: Final = 128


class LayerSteps:
    """The steps of one layer and direction.

    Args:
        call: the call.
        index: of the layer and direction.
        inputs: what the inputs add to the gates but for biases, float32 [T, B, gates * H].
        output: [T, B, P], which is written to; any strides of the first two dimensions.
        reserve: float32 [T, B, columns], which is written to; None: it is not wanted.
        lengths: int32 [B] on the device; None: all sequences have all steps.
    """

    def __init__(
        self,
        call: RecurrentCall,
        index: int,
        inputs: Tensor,
        output: Tensor,
        reserve: Tensor | None,
        lengths: Tensor | None,
    ) -> None:
        weights = self._weights = call.weights[index]
        self._inputs, self._output, self._reserve = inputs, output, reserve
        self.before = call.hidden[index].clone(memory_format=torch.contiguous_format)
        self._after = torch.empty_like(self.before)
        device, (batch, outputs) = inputs.device, self.before.shape
        # Where the kernel reads nothing, and writes nothing.
        self._none = torch.zeros(1, dtype=torch.float32, device=device)
        self.cell = (
            self._none
            if call.cell is None
            else call.cell[index].to(torch.float32, copy=True).contiguous()
        )
        hidden = weights.w_hr.shape[1] if weights.w_hr is not None else outputs
        self._wide = (
            None
            if weights.w_hr is None
            else torch.empty((batch, hidden), dtype=torch.float32, device=device)
        )
        self._lengths = torch.zeros(1, dtype=torch.int32, device=device)
        self._lengths = self._lengths if lengths is None else lengths
        self._steps = torch.arange(inputs.shape[0], device=device)
        projection = (0, 0) if weights.w_hr is None else weights.w_hr.stride()
        kept = 0 if reserve is None else reserve.shape[2]
        sizes = (batch, hidden, outputs, *weights.w_hh.stride(), *projection, output.stride(1))
        self._sizes = torch.tensor((*sizes, kept), device=device)
        self._groups = -(-hidden // _UNITS), -(-batch // _ROWS)
        flags = (
            ("BIAS", weights.b_ih is not None),
            ("RAGGED", lengths is not None),
            ("RESERVE", reserve is not None),
            ("PROJECTED", weights.w_hr is not None),
        )
        self._source = source_of("forward", call.kind, call.input.dtype, flags)

    def launches(self, step: int) -> list[Launch]:
        """Return the launches of a step; after them ``before`` is the state that it leaves."""
        before, after, weights = self.before, self._after, self._weights
        self.before, self._after = after, before
        reserve = self._none if self._reserve is None else self._reserve[step]
        wide = self._none if self._wide is None else self._wide
        common = self._steps[step : step + 1], self._sizes
        written = self._output[step], reserve
        biases = [
            weights.w_hh if bias is None else bias.contiguous()
            for bias in (weights.b_ih, weights.b_hh)
        ]
        buffers = (
            *(self._inputs[step], before, after, self.cell, weights.w_hh, *biases, self._lengths),
            *(*written, wide, *common),
        )
        is_projected, has_reserve = self._wide is not None, self._reserve is not None
        outputs = (*((10,) if is_projected else (2, 8)), *((9,) if has_reserve else ()))
        first = Launch(
            *(self._source, "recurrent_step", self._groups, _THREADS, buffers),
            outputs=outputs,
            updated=(3,),
        )
        if weights.w_hr is None:
            return [first]
        groups = -(-weights.w_hr.shape[0] // _UNITS), self._groups[1]
        buffers = (wide, before, after, weights.w_hr, self._lengths, *written, *common)
        second = Launch(
            *(self._source, "recurrent_projection", groups, _THREADS, buffers),
            outputs=(2, 5),
            updated=(6,) if has_reserve else (),
        )
        return [first, second]
