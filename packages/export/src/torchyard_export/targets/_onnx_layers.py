"""The recurrent ops in ONNX's own layers.

ONNX's gates are ordered i, o, f, c (LSTM) and z, r, h (GRU), where torch's are i, f, g, o and r, z,
n; its biases of both sides are in one row; its outputs are ``[T, D, B, H]``. torch's GRU applies
the reset gate behind the recurrent matrix and its bias, which ONNX calls ``linear_before_reset``.
Source: the ONNX operator specification, LSTM-14, GRU-14, RNN-14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx
import torch
from onnxscript import opset18 as op
from torch import Tensor

__all__ = ["gru", "lstm", "projected_lstm", "rnn"]

_LSTM_ORDER: Final = (0, 3, 1, 2)
_GRU_ORDER: Final = (1, 0, 2)


def lstm(
    input: Any,
    lengths: Any,
    h0: Any,
    c0: Any,
    weights: Sequence[Any],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> Any:
    """Write an LSTM without projections."""
    states = [h0, c0]
    return _stacked("LSTM", input, lengths, states, weights, biases, layers, bidirectional, {})


def projected_lstm(value_of: Callable[[Any], Tensor]) -> Callable[..., Any]:
    """Return what writes an LSTM with projections.

    ONNX's LSTM has none, but its state may be the one before the projection: with P the projection
    and R the recurrent matrix, R P h is (R P) h, and outputs are projected afterwards. A given
    state s is P h for h = pinv(P) s, since P has full rank in all but degenerate models.

    Args:
        value_of: a weight's tensor, by its value in the graph; raises KeyError where it is
            computed.
    """

    def write(
        input: Any,
        lengths: Any,
        h0: Any,
        c0: Any,
        weights: Sequence[Any],
        biases: bool,
        layers: int,
        bidirectional: bool,
    ) -> Any:
        directions = 2 if bidirectional else 1
        each = 5 if biases else 3
        current = input
        finals: list[list[Any]] = [[], []]
        for layer in range(layers):
            rows = range(layer * directions, (layer + 1) * directions)
            own, before, after = [], [], []
            for row in rows:
                *part, last = weights[row * each : (row + 1) * each]
                projection = value_of(last).detach().double()
                recurrent = value_of(part[1]).detach()
                part[1] = _constant((recurrent.double() @ projection).to(recurrent.dtype))
                own += part
                before.append(torch.linalg.pinv(projection).T.to(recurrent.dtype))
                after.append(projection.T.to(recurrent.dtype))
            slices = [
                op.Slice(state, _ints(rows.start), _ints(rows.stop), _ints(0)) for state in (h0, c0)
            ]
            slices[0] = op.MatMul(slices[0], _constant(torch.stack(before)))
            raw, h, c = _stacked(
                "LSTM",
                current,
                lengths,
                slices,
                own,
                biases,
                1,
                bidirectional,
                {},
                len(projection.T),
            )
            hidden, size = projection.shape[1], projection.shape[0]
            apart = op.Reshape(raw, _ints(0, 0, directions, hidden))
            turned = op.Transpose(apart, perm=[0, 2, 1, 3])
            out = op.MatMul(turned, _constant(torch.stack(after)))
            back = op.Transpose(out, perm=[0, 2, 1, 3])
            current = op.Reshape(back, _ints(0, 0, directions * size))
            finals[0].append(op.MatMul(h, _constant(torch.stack(after))))
            finals[1].append(c)
        return (current, *(_joined(final) for final in finals))

    return write


def gru(
    input: Any,
    lengths: Any,
    h0: Any,
    weights: Sequence[Any],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> Any:
    """Write a GRU."""
    more = {"linear_before_reset": 1}
    return _stacked("GRU", input, lengths, [h0], weights, biases, layers, bidirectional, more)


def rnn(
    input: Any,
    lengths: Any,
    h0: Any,
    weights: Sequence[Any],
    biases: bool,
    layers: int,
    bidirectional: bool,
    nonlinearity: str,
) -> Any:
    """Write a plain RNN."""
    name = {"tanh": "Tanh", "relu": "Relu"}[nonlinearity]
    more = {"activations": [name] * (2 if bidirectional else 1)}
    return _stacked("RNN", input, lengths, [h0], weights, biases, layers, bidirectional, more)


def _stacked(
    kind: str,
    input: Any,
    lengths: Any,
    states: Sequence[Any],
    weights: Sequence[Any],
    biases: bool,
    layers: int,
    bidirectional: bool,
    more: dict[str, Any],
    hidden: int | None = None,
) -> Any:
    directions = 2 if bidirectional else 1
    each = 4 if biases else 2
    hidden = weights[1].shape[1] if hidden is None else hidden
    order = {"LSTM": _LSTM_ORDER, "GRU": _GRU_ORDER, "RNN": (0,)}[kind]
    ends = None if lengths is None else op.Cast(lengths, to=6)
    current = input
    finals: list[list[Any]] = [[] for _ in states]
    for layer in range(layers):
        rows = range(layer * directions, (layer + 1) * directions)
        own = [weights[row * each : (row + 1) * each] for row in rows]
        w = _joined([op.Unsqueeze(_gates(part[0], order, hidden), _ints(0)) for part in own])
        r = _joined([op.Unsqueeze(_gates(part[1], order, hidden), _ints(0)) for part in own])
        b = None
        if biases:
            pairs = [
                op.Concat(_gates(p[2], order, hidden), _gates(p[3], order, hidden), axis=0)
                for p in own
            ]
            b = _joined([op.Unsqueeze(pair, _ints(0)) for pair in pairs])
        initial = [
            op.Slice(state, _ints(rows.start), _ints(rows.stop), _ints(0)) for state in states
        ]
        found = getattr(op, kind)(
            *(current, w, r, b, ends, *initial),
            direction="bidirectional" if bidirectional else "forward",
            hidden_size=hidden,
            **more,
        )
        # [T, D, B, H] -> [T, B, D*H]
        swapped = op.Transpose(found[0], perm=[0, 2, 1, 3])
        current = op.Reshape(swapped, _ints(0, 0, directions * hidden))
        for final, item in zip(finals, found[1:], strict=False):
            final.append(item)
    return (current, *(_joined(final) for final in finals))


def _gates(weight: Any, order: Sequence[int], hidden: int) -> Any:
    if len(order) == 1:
        return weight
    parts = [
        op.Slice(weight, _ints(gate * hidden), _ints((gate + 1) * hidden), _ints(0))
        for gate in order
    ]
    return op.Concat(*parts, axis=0)


def _joined(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)


def _constant(tensor: Tensor) -> Any:
    return op.Constant(value=onnx.numpy_helper.from_array(tensor.contiguous().numpy()))


def _ints(*values: int) -> Any:
    return op.Constant(value_ints=list(values))
