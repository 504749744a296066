"""Recurrent layers as one op each, whose fakes keep batch and time symbolic.

``aten::lstm``, ``gru`` and ``rnn_*`` are composite: recording a program unrolls them over time, at
the example's length. An op of our own is recorded as it is, runs aten's own sequence kernels, and
survives decompositions. ``lengths`` gives each sequence of the batch its own end, as packing does.

Layouts: input ``[T, B, I]``; h0 ``[L*D, B, H or P]``; c0 ``[L*D, B, H]``; lengths int64 ``[B]`` on
the CPU, each in 1..T, or None; output ``[T, B, D*(H or P)]``, zero behind a sequence's length. T:
time, B: batch, I: features, L: layers, D: directions, H: hidden, P: projection. ``weights`` are in
the order of ``nn.LSTM``'s flat weights: per layer and direction w_ih, w_hh, b_ih, b_hh, w_hr.
Gradients come from running aten's kernel again. Dropout between layers is not part of the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor

from torchyard_export import _torch_compat

NAMESPACE: Final = "torchyard_export"
GATES: Final = {"lstm": 4, "gru": 3, "rnn": 1}

_TAIL: Final = "Tensor[] weights, bool biases, int layers, bool bidirectional"
# torch.library has no types of its own.
_LIBRARY: Final[Any] = cast("Any", torch.library.Library)(NAMESPACE, "DEF")
_LIBRARY.define(
    f"lstm(Tensor input, Tensor? lengths, Tensor h0, Tensor c0, {_TAIL}) "
    "-> (Tensor output, Tensor hn, Tensor cn)"
)
_LIBRARY.define(
    f"gru(Tensor input, Tensor? lengths, Tensor h0, {_TAIL}) -> (Tensor output, Tensor hn)"
)
_LIBRARY.define(
    f"rnn(Tensor input, Tensor? lengths, Tensor h0, {_TAIL}, str nonlinearity) "
    "-> (Tensor output, Tensor hn)"
)


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
    return _run(
        *(_torch_compat.lstm, input, lengths, (h0, c0)),
        *(weights, biases, layers, bidirectional),
    )


def _gru(
    input: Tensor,
    lengths: Tensor | None,
    h0: Tensor,
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    return _run(
        *(_torch_compat.gru, input, lengths, (h0,)), *(weights, biases, layers, bidirectional)
    )


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
    function = {"tanh": _torch_compat.rnn_tanh, "relu": _torch_compat.rnn_relu}[nonlinearity]
    return _run(*(function, input, lengths, (h0,)), *(weights, biases, layers, bidirectional))


def _run(
    function: Callable[..., Any],
    input: Tensor,
    lengths: Tensor | None,
    states: tuple[Tensor, ...],
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    # aten's LSTM takes its states as a list, the others take a tensor.
    form = (lambda items: list(items)) if len(states) == 2 else (lambda items: items[0])
    if lengths is None:
        found = function(
            input, form(states), list(weights), biases, layers, 0.0, False, bidirectional, False
        )
        return tuple(found)
    ordered, order = torch.sort(lengths, descending=True, stable=True)
    place = order.to(input.device)
    data, sizes = _torch_compat.pack_padded_sequence(input.index_select(1, place), ordered, False)
    sorted_states = tuple(state.index_select(1, place) for state in states)
    packed, *finals = function(
        data, sizes, form(sorted_states), list(weights), biases, layers, 0.0, False, bidirectional
    )
    output, _ = _torch_compat.pad_packed_sequence(packed, sizes, False, 0.0, input.shape[0])
    back = torch.argsort(place)
    return tuple(item.index_select(1, back) for item in (output, *finals))


def _fake(
    input: Tensor,
    lengths: Tensor | None,
    h0: Tensor,
    states: tuple[Tensor, ...],
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    width = h0.shape[2] * (2 if bidirectional else 1)
    output = input.new_empty(input.shape[0], input.shape[1], width)
    return (output, *(state.new_empty(state.shape) for state in states))


def _fake_lstm(
    input: Tensor,
    lengths: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    return _fake(input, lengths, h0, (h0, c0), bidirectional)


def _fake_others(
    input: Tensor,
    lengths: Tensor | None,
    h0: Tensor,
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    nonlinearity: str = "",
) -> tuple[Tensor, ...]:
    return _fake(input, lengths, h0, (h0,), bidirectional)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
    kinds = [type(item) for item in inputs]
    ctx.kinds = kinds
    ctx.counts = [len(item) if isinstance(item, (list, tuple)) else -1 for item in inputs]
    ctx.plain = [None if isinstance(item, (Tensor, list, tuple)) else item for item in inputs]
    tensors: list[Tensor | None] = []
    for item in inputs:
        if isinstance(item, (list, tuple)):
            tensors += item
        elif isinstance(item, Tensor):
            tensors.append(item)
    ctx.save_for_backward(*tensors)


def _backward_of(kernel: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Any, ...]]:
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        leaves: list[Tensor] = []

        def leaf() -> Tensor:
            tensor = next(saved)
            copy: Tensor = tensor.detach()
            if copy.is_floating_point():
                copy = copy.requires_grad_()
                leaves.append(copy)
            return copy

        with torch.enable_grad():
            inputs = [
                [leaf() for _ in range(count)]
                if count >= 0
                else (leaf() if issubclass(kind, Tensor) else plain)
                for kind, count, plain in zip(ctx.kinds, ctx.counts, ctx.plain, strict=True)
            ]
            outputs = kernel(*inputs)
            pairs = [
                (output, gradient)
                for output, gradient in zip(outputs, gradients, strict=True)
                if gradient is not None
            ]
            found = iter(
                torch.autograd.grad(
                    [output for output, _ in pairs],
                    leaves,
                    [gradient for _, gradient in pairs],
                    allow_unused=True,
                )
            )

        def gradient_of(item: object) -> Tensor | None:
            wanted = isinstance(item, Tensor) and item.is_floating_point()
            return next(found) if wanted else None

        return tuple(
            [gradient_of(part) for part in item] if isinstance(item, list) else gradient_of(item)
            for item in inputs
        )

    return backward


for _name, _kernel, _meta in (
    ("lstm", _lstm, _fake_lstm),
    ("gru", _gru, _fake_others),
    ("rnn", _rnn, _fake_others),
):
    # For every device: aten's kernels choose between their libraries themselves.
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{_name}", _meta, lib=_LIBRARY)
    torch.library.register_autograd(
        f"{NAMESPACE}::{_name}", _backward_of(_kernel), setup_context=_setup, lib=_LIBRARY
    )
