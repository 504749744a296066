"""Calls of recurrent layers, and how far from float64 their results may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import torch
from torch import Tensor

import torchyard_kernels as tk
from torchyard import registry
from torchyard_kernels.recurrent._cells import State, step
from torchyard_kernels.recurrent._validation import cells
from torchyard_kernels.recurrent.contract import (
    FORWARD,
    RecurrentCall,
    RecurrentKind,
    RecurrentResult,
    gates,
)
from torchyard_kernels.recurrent.reference import exact_forward

__all__ = ["Case", "cases", "forwards", "misses"]

# Both results are draws of the same roundings in another order.
_FACTOR = 2.0
# Roundings of one step that the naive computation may happen to be spared: of the sums, of each
# gate (3e-7 in the kernels' polynomials), of the products with them, and of the result.
_FLOOR = 8.0


@dataclass(frozen=True)
class Case:
    """A call's sizes and what it has, without its tensors."""

    kind: RecurrentKind = RecurrentKind.GRU
    dtype: torch.dtype = torch.float32
    steps: int = 5
    batch: int = 3
    inputs: int = 4
    hidden: int = 6
    proj: int = 0
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    ragged: bool = False
    state: bool = True
    batch_first: bool = False
    seed: int = 0

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def weights(self, generator: torch.Generator) -> list[Tensor]:
        """Return weights as torch's modules initialise them, in their order."""
        outputs, found = self.proj or self.hidden, []
        for layer in range(self.layers):
            inputs = self.inputs if layer == 0 else outputs * self.directions
            rows = gates(self.kind) * self.hidden
            shapes = [(rows, inputs), (rows, outputs)]
            shapes += [(rows,), (rows,)] if self.bias else []
            shapes += [(self.proj, self.hidden)] if self.proj else []
            for shape in shapes * self.directions:
                values = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
                found.append((values / self.hidden**0.5).to(self.dtype))
        return found

    def call(self) -> RecurrentCall:
        """Return the call's tensors, the same for the same case."""
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(self.dtype)

        count = self.layers * self.directions
        given = normal(self.batch, self.steps, self.inputs).transpose(0, 1)
        if not self.batch_first:
            given = given.contiguous()
        hidden = normal(count, self.batch, self.proj or self.hidden).tanh()
        cell = normal(count, self.batch, self.hidden)
        lengths = torch.randint(1, self.steps + 1, (self.batch,), generator=generator)
        return RecurrentCall(
            self.kind,
            given,
            hidden if self.state else torch.zeros_like(hidden),
            (cell if self.state else torch.zeros_like(cell))
            if self.kind is RecurrentKind.LSTM
            else None,
            cells(self.weights(generator), self.layers, self.bidirectional),
            self.layers,
            self.bidirectional,
            lengths if self.ragged else None,
        )

    def run(self, call: RecurrentCall, **more: Any) -> RecurrentResult:
        """Make the call through the public function."""
        weights = [weight for cell in call.weights for weight in cell if weight is not None]
        given = call.input.transpose(0, 1) if self.batch_first else call.input
        arguments: dict[str, Any] = {
            "num_layers": self.layers,
            "bidirectional": self.bidirectional,
            "batch_first": self.batch_first,
            "lengths": call.lengths,
            **more,
        }
        cell = None
        if call.cell is not None:
            output, (hidden, cell) = tk.lstm(given, (call.hidden, call.cell), weights, **arguments)
        elif self.kind is RecurrentKind.GRU:
            output, hidden = tk.gru(given, call.hidden, weights, **arguments)
        else:
            nonlinearity = "tanh" if self.kind is RecurrentKind.RNN_TANH else "relu"
            output, hidden = tk.rnn(
                given, call.hidden, weights, nonlinearity=nonlinearity, **arguments
            )
        output = output.transpose(0, 1) if self.batch_first else output
        return RecurrentResult(output, hidden, cell)


@st.composite
def cases(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...], most: int = 20) -> Case:
    """Draw sizes around the widths of vectors and panels."""
    kind = draw(st.sampled_from(list(RecurrentKind)))
    hidden = draw(st.integers(1, most))
    projected = kind is RecurrentKind.LSTM and hidden > 1 and draw(st.booleans())
    flag = st.booleans()
    return Case(
        kind,
        draw(st.sampled_from(dtypes)),
        draw(st.integers(1, 7)),
        draw(st.integers(1, 11)),
        draw(st.integers(1, most)),
        hidden,
        draw(st.integers(1, hidden - 1)) if projected else 0,
        draw(st.integers(1, 3)),
        *(draw(flag) for _ in range(5)),
        seed=draw(st.integers(0, 2**16)),
    )


def forwards(call: RecurrentCall, *, reserve: bool = False) -> dict[str, Any]:
    """Return every implementation that is installed and supports a call, by name."""
    request = replace(call, reserve=reserve).request(grad=reserve)
    names = [
        item.name for item in registry().decide(FORWARD, request).trace if item.verdict.supported
    ]
    return {name: registry().resolve(FORWARD, request, use=name) for name in names}


def misses(result: RecurrentResult, call: RecurrentCall) -> list[str]:
    """Return what of a result is further from float64 than roundings explain.

    The ruler is the error of the equations computed naively, all of it rounded to the call's dtype.
    """
    exact, naive = exact_forward(call), _naive(call)
    eps = torch.finfo(call.input.dtype).eps
    found = []
    # A state may be the small rest of a sum, and its naive computation exact by chance.
    states = [state for state in (exact.hidden, exact.cell) if state is not None]
    size = max((float(state.abs().max()) for state in states if state.numel()), default=0.0)
    size = max(size, _size_of_sums(call))
    for name in ("output", "hidden", "cell"):
        got, right, rough = (getattr(item, name) for item in (result, exact, naive))
        if right is None:
            continue
        allowed = _FACTOR * float((rough.double() - right).abs().max()) + _FLOOR * eps * size
        error = float((got.double() - right).abs().max())
        if not error <= allowed:
            found.append(f"{name}: error {error:.3g}, allowed {allowed:.3g}")
    return found


def _size_of_sums(call: RecurrentCall) -> float:
    """Return how large the sums of the first layer's gates become on their way, as random walks."""
    cell = call.weights[0]
    squares = call.input.double().square() @ cell.w_ih.double().square().T
    squares = squares + call.hidden[0].double().square() @ cell.w_hh.double().square().T
    return float(squares.sqrt().max()) if squares.numel() else 0.0


def _naive(call: RecurrentCall) -> RecurrentResult:
    """Take the steps in the call's dtype."""
    steps, batch, _ = call.input.shape
    lengths = torch.full((batch,), steps) if call.lengths is None else call.lengths
    directions = 2 if call.bidirectional else 1
    values, hidden, cell = call.input, [], []
    for layer in range(call.num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            state = State(call.hidden[index], None if call.cell is None else call.cell[index])
            at = [values.new_empty(0)] * steps
            for t in range(steps) if direction == 0 else reversed(range(steps)):
                there = (t < lengths)[:, None]
                new = step(call.kind, values[t], state, call.weights[index])
                at[t] = torch.where(there, new.hidden, 0)
                old_cell = state.cell
                state = State(
                    torch.where(there, new.hidden, state.hidden),
                    None
                    if new.cell is None or old_cell is None
                    else torch.where(there, new.cell, old_cell),
                )
            outputs.append(torch.stack(at))
            hidden.append(state.hidden)
            cell.append(state.cell)
        values = torch.cat(outputs, dim=2)
    kept = [item for item in cell if item is not None]
    return RecurrentResult(values, torch.stack(hidden), torch.stack(kept) if kept else None)
