"""The recurrent ops as loops over time, for targets that have loops and no recurrent layers.

The loop's state keeps one shape: a batch of free size is padded to its greatest, and cut again. Of
sequences with lengths, a step behind a sequence's end leaves its state as it was and gives zero.

Layouts and names are those of :mod:`torchyard_export._ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from torchyard_export._torch_compat import scan

__all__ = ["DECOMPOSITIONS"]

# (gates of the input at one step, state, weights of the recurrence) -> the next state; its first
# tensor is the output.
_Step = Callable[[Tensor, list[Tensor], Sequence[Tensor]], list[Tensor]]


def _lstm(
    input: Tensor,
    lengths: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    projected = h0.shape[2] != c0.shape[2]

    def step(gates: Tensor, state: list[Tensor], own: Sequence[Tensor]) -> list[Tensor]:
        h, c = state
        i, f, g, o = (gates + h @ own[0].t()).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return [h @ own[1].t() if projected else h, c]

    each = (4 if biases else 2) + projected

    def split(own: Sequence[Tensor]) -> tuple[Tensor | None, list[Tensor]]:
        bias = own[2] + own[3] if biases else None
        return bias, [own[1], *([own[-1]] if projected else [])]

    return _stacked(step, split, each, input, lengths, [h0, c0], weights, layers, bidirectional)


def _gru(
    input: Tensor,
    lengths: Tensor | None,
    h0: Tensor,
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    def step(gates: Tensor, state: list[Tensor], own: Sequence[Tensor]) -> list[Tensor]:
        h = state[0]
        r, z, n = gates.chunk(3, 1)
        hr, hz, hn = F.linear(h, *own).chunk(3, 1)
        z = (z + hz).sigmoid()
        # The reset gate comes behind the recurrent matrix and its bias.
        n = (n + (r + hr).sigmoid() * hn).tanh()
        return [n + z * (h - n)]

    def split(own: Sequence[Tensor]) -> tuple[Tensor | None, list[Tensor]]:
        return (own[2], [own[1], own[3]]) if biases else (None, [own[1]])

    each = 4 if biases else 2
    return _stacked(step, split, each, input, lengths, [h0], weights, layers, bidirectional)


def _rnn(
    input: Tensor,
    lengths: Tensor | None,
    h0: Tensor,
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    nonlinearity: str,
) -> tuple[Tensor, ...]:
    function = {"tanh": torch.tanh, "relu": torch.relu}[nonlinearity]

    def step(gates: Tensor, state: list[Tensor], own: Sequence[Tensor]) -> list[Tensor]:
        return [function(gates + state[0] @ own[0].t())]

    def split(own: Sequence[Tensor]) -> tuple[Tensor | None, list[Tensor]]:
        return (own[2] + own[3] if biases else None), [own[1]]

    each = 4 if biases else 2
    return _stacked(step, split, each, input, lengths, [h0], weights, layers, bidirectional)


def _stacked(
    step: _Step,
    split: Callable[[Sequence[Tensor]], tuple[Tensor | None, list[Tensor]]],
    each: int,
    input: Tensor,
    lengths: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    layers: int,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    directions = 2 if bidirectional else 1
    batch: Any = input.shape[1]
    greatest = _greatest(batch)
    inside = None if lengths is None else _padded(_inside(input, lengths), greatest)
    padded_states = [_padded(state, greatest) for state in states]
    current = _padded(input, greatest)
    finals: list[list[Tensor]] = [[] for _ in states]
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            row = layer * directions + direction
            bias, own = split(weights[row * each : (row + 1) * each])
            gates = F.linear(current, weights[row * each], bias)
            sequences = [gates] if inside is None else [gates, inside]
            if direction:
                sequences = [item.flip(0) for item in sequences]
            init = [state[row].clone() for state in padded_states]
            *last, output = scan(_combined(step, len(init), len(sequences)), init, sequences, own)
            output = output.flip(0) if direction else output
            outputs.append(output)
            for final, item in zip(finals, last, strict=True):
                final.append(item)
        current = outputs[0] if directions == 1 else torch.cat(outputs, 2)
    found = (current, *(torch.stack(final) for final in finals))
    return found if isinstance(batch, int) else tuple(_cut(item, batch) for item in found)


def _combined(step: _Step, states: int, sequences: int) -> Callable[..., list[Tensor]]:
    def combined(*words: Tensor) -> list[Tensor]:
        state = list(words[:states])
        gates, *rest = words[states : states + sequences]
        found = step(gates, state, words[states + sequences :])
        output = found[0].clone()
        if rest:
            inside = rest[0]
            found = [torch.where(inside, new, old) for new, old in zip(found, state, strict=True)]
            output = torch.where(inside, output, torch.zeros_like(output))
        return [*found, output]

    return combined


def _inside(input: Tensor, lengths: Tensor) -> Tensor:
    """Return ``[T, B, 1]``: whether a step is within its sequence."""
    steps = torch.arange(input.shape[0], device=input.device)
    return (steps[:, None] < lengths[None, :])[:, :, None]


def _padded(tensor: Tensor, greatest: int) -> Tensor:
    """Return ``[N, greatest, features]``.

    As many rows are added as there can be, and cut again: to add what is missing would add none
    where none is, of which recording makes a case of its own.
    """
    batch: Any = tensor.shape[1]
    if isinstance(batch, int):
        return tensor
    rest = tensor.new_zeros(tensor.shape[0], greatest, tensor.shape[2])
    return torch.cat([tensor, rest], 1)[:, :greatest]


def _cut(tensor: Tensor, batch: Any) -> Tensor:
    """Return ``[N, batch, features]``; a slice would ask whether it cuts anything off."""
    return tensor.index_select(1, torch.arange(batch, device=tensor.device))


def _greatest(size: Any) -> int:
    if isinstance(size, torch.SymInt):
        return int(size.node.shape_env.bound_sympy(size.node.expr).upper)
    return int(size)


_OURS: Final = torch.ops.torchyard_export
DECOMPOSITIONS: Final[Mapping[Any, Callable[..., Any]]] = {
    _OURS.lstm.default: _lstm,
    _OURS.gru.default: _gru,
    _OURS.rnn.default: _rnn,
}
