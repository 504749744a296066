"""Models of every kind of recurrent layer, and how each is called."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

INPUTS, HIDDEN, PROJECTED = 3, 5, 4
AXES = ("batch", "time", "both")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the matrix."""

    kind: str
    layers: int
    bidirectional: bool
    batch_first: bool
    projected: bool
    given_state: bool
    packed: bool
    axes: str

    def __str__(self) -> str:
        words = [self.kind, f"{self.layers}-layer", "bi" if self.bidirectional else "uni"]
        words += ["batch-first"] * self.batch_first + ["proj"] * self.projected
        words += ["h0"] * self.given_state + ["packed"] * self.packed + [self.axes]
        return " ".join(words)


def cells() -> Iterator[Cell]:
    """Return all cells; only an LSTM has projections."""
    flags = (False, True)
    for kind in ("LSTM", "GRU", "RNN-tanh", "RNN-relu"):
        yield from itertools.starmap(
            Cell,
            itertools.product(
                *((kind,), (1, 2), flags, flags, flags if kind == "LSTM" else (False,)),
                *(flags, flags, AXES),
            ),
        )


class Recurrent(nn.Module):
    """One recurrent layer, its final states among the outputs."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        options: dict[str, Any] = {
            "num_layers": cell.layers,
            "bidirectional": cell.bidirectional,
            "batch_first": cell.batch_first,
        }
        if cell.projected:
            options["proj_size"] = PROJECTED
        self.cell = cell
        self.rnn: nn.RNNBase
        if cell.kind == "LSTM":
            self.rnn = nn.LSTM(INPUTS, HIDDEN, **options)
        elif cell.kind == "GRU":
            self.rnn = nn.GRU(INPUTS, HIDDEN, **options)
        else:
            options["nonlinearity"] = cell.kind.removeprefix("RNN-")
            self.rnn = nn.RNN(INPUTS, HIDDEN, **options)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        h0: Tensor | None = None,
        c0: Tensor | None = None,
    ) -> Any:
        state = None if h0 is None else h0 if c0 is None else (h0, c0)
        if lengths is None:
            return self.rnn(x, state)
        first = self.cell.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False)
        output, final = self.rnn(packed, state)
        padded, _ = pad_packed_sequence(
            output, batch_first=first, total_length=x.shape[1 if first else 0]
        )
        return padded, final


def prepared(cell: Cell, *, batch: int = 3, time: int = 7) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model in evaluation mode, and example arguments by name."""
    torch.manual_seed(0)
    model = Recurrent(cell).eval()
    shape = (batch, time, INPUTS) if cell.batch_first else (time, batch, INPUTS)
    kwargs: dict[str, Any] = {"x": torch.randn(shape)}
    if cell.packed:
        kwargs["lengths"] = torch.tensor([time, *[1 + n % time for n in range(batch - 1)]])
    if cell.given_state:
        rows = cell.layers * (2 if cell.bidirectional else 1)
        kwargs["h0"] = torch.randn(rows, batch, PROJECTED if cell.projected else HIDDEN)
        if cell.kind == "LSTM":
            kwargs["c0"] = torch.randn(rows, batch, HIDDEN)
    return model, kwargs


def axes_of(cell: Cell) -> dict[str, dict[int, str]]:
    """Return which axis of which argument is the batch's or time's, of those that are dynamic."""
    b, t = (0, 1) if cell.batch_first else (1, 0)
    found = {"x": {b: "batch", t: "time"}}
    if cell.packed:
        found["lengths"] = {0: "batch"}
    if cell.given_state:
        found["h0"] = {1: "batch"}
        if cell.kind == "LSTM":
            found["c0"] = {1: "batch"}
    wanted = {"batch": {"batch"}, "time": {"time"}, "both": {"batch", "time"}}[cell.axes]
    return {
        name: {axis: dimension for axis, dimension in axes.items() if dimension in wanted}
        for name, axes in found.items()
    }
