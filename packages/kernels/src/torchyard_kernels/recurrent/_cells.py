"""One step of each cell as its equations, differentiable, in any dtype."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchyard_kernels.recurrent.contract import CellWeights, RecurrentKind

__all__ = ["State", "step"]


class State(NamedTuple):
    """The state between two steps: hidden [B, P], and for an LSTM cell [B, H]."""

    hidden: Tensor
    cell: Tensor | None


def step(kind: RecurrentKind, x: Tensor, state: State, weights: CellWeights) -> State:
    """Return the state after one step with input x [B, I]; dtypes are all the same."""
    inputs = torch.nn.functional.linear(x, weights.w_ih, weights.b_ih)
    recurrent = torch.nn.functional.linear(state.hidden, weights.w_hh, weights.b_hh)
    if kind is RecurrentKind.LSTM:
        assert state.cell is not None
        i, f, g, o = (inputs + recurrent).chunk(4, dim=1)
        cell = torch.sigmoid(f) * state.cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        if weights.w_hr is not None:
            hidden = hidden @ weights.w_hr.t()
        return State(hidden, cell)
    if kind is RecurrentKind.GRU:
        r_x, z_x, n_x = inputs.chunk(3, dim=1)
        r_h, z_h, n_h = recurrent.chunk(3, dim=1)
        r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + r * n_h)
        return State((1 - z) * n + z * state.hidden, None)
    if kind is RecurrentKind.RNN_TANH:
        return State(torch.tanh(inputs + recurrent), None)
    return State(torch.relu(inputs + recurrent), None)
