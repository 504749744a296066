"""Recurrent layers and packed sequences while a model is recorded: ops of ours in their place.

The user's modules keep their parameters, attributes and forward. While recording, calls of aten's
sequence functions become ours. A packed sequence is then a padded one that carries its lengths:
its ``data`` is ``[T, B, features]`` instead of ``[sum of lengths, features]``, so that no size
depends on data, and elementwise work between packing and padding stays what it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from torchyard_export import _ops, _torch_compat

_LENGTHS: Final = "_torchyard_export_lengths"
_OP: Final = getattr(torch.ops, _ops.NAMESPACE)
_NONLINEARITY: Final = {_torch_compat.rnn_tanh: "tanh", _torch_compat.rnn_relu: "relu"}


def _sequence(
    function: Callable[..., Any],
    input: Tensor,
    lengths: Tensor | None,
    states: tuple[Tensor, ...],
    weights: list[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> Any:
    tail = (weights, biases, layers, bidirectional)
    if function == _torch_compat.lstm:
        return _OP.lstm(input, lengths, *states, *tail)
    if function == _torch_compat.gru:
        return _OP.gru(input, lengths, *states, *tail)
    return _OP.rnn(input, lengths, *states, *tail, _NONLINEARITY[function])


def _padded(function: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(
        input: Tensor,
        states: Any,
        weights: Any,
        biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        if isinstance(weights, Tensor):
            raise TypeError("a packed sequence that torch.nn.utils.rnn did not make")
        if dropout and train and layers > 1:
            return NotImplemented
        states = (states,) if isinstance(states, Tensor) else tuple(states)
        source = input.transpose(0, 1) if batch_first else input
        output, *finals = _sequence(
            function, source, None, states, list(weights), biases, layers, bidirectional
        )
        return (output.transpose(0, 1) if batch_first else output, *finals)

    return replacement


def _pack(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Return padded data and, as packing would, how many sequences each step has."""
    data = input.transpose(0, 1) if batch_first else input
    lengths = lengths.to(dtype=torch.int64, device="cpu")
    steps = torch.arange(data.shape[0], device="cpu")
    counts = (lengths[None, :] > steps[:, None]).sum(1)
    longest = lengths.max().item()
    _torch_compat.check_condition(longest >= 1)
    _torch_compat.check_condition(longest <= data.shape[0])
    sizes = counts[:longest]
    setattr(sizes, _LENGTHS, lengths)
    return data, sizes


def _pad(
    data: Tensor, sizes: Tensor, batch_first: bool, padding: float, total: int
) -> tuple[Tensor, Tensor]:
    lengths = _lengths_of(sizes)
    if total is not data.shape[0]:
        data = data[:total]
    steps = torch.arange(data.shape[0], device=data.device)
    inside = steps[:, None] < lengths.to(data.device)[None, :]
    inside = inside.reshape(*inside.shape, *[1] * (data.dim() - 2))
    padded = torch.where(
        inside, data, torch.full((), padding, dtype=data.dtype, device=data.device)
    )
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def _lengths_of(sizes: Tensor) -> Tensor:
    lengths = getattr(sizes, _LENGTHS, None)
    if lengths is None:
        raise TypeError(
            "PackedSequence: expected one that torch.nn.utils.rnn made while recording, got one "
            "with other batch_sizes; pass batch_sizes of the packed sequence on as they are"
        )
    found: Tensor = lengths
    return found


REPLACEMENTS: Final[Mapping[Any, Callable[..., Any]]] = {
    _torch_compat.lstm: _padded(_torch_compat.lstm),
    _torch_compat.gru: _padded(_torch_compat.gru),
    _torch_compat.rnn_tanh: _padded(_torch_compat.rnn_tanh),
    _torch_compat.rnn_relu: _padded(_torch_compat.rnn_relu),
    _torch_compat.pack_padded_sequence: _pack,
    _torch_compat.pad_packed_sequence: _pad,
}


def _forward_packed(module: nn.RNNBase, packed: PackedSequence, state: Any) -> Any:
    """Do what the module's forward does with a packed sequence, on the padded one."""
    data, sizes, order, back = packed
    lengths = _lengths_of(sizes)
    batch = data.shape[1]
    is_lstm = module.mode == "LSTM"
    rows = module.num_layers * (2 if module.bidirectional else 1)
    if state is None:
        widths = [module.proj_size or module.hidden_size, module.hidden_size][: 1 + is_lstm]
        states = tuple(data.new_zeros(rows, batch, width) for width in widths)
    else:
        states = tuple(state) if is_lstm else (state,)
        if order is not None:
            states = tuple(item.index_select(1, order) for item in states)
    functions: dict[str, Any] = {
        "LSTM": _torch_compat.lstm,
        "GRU": _torch_compat.gru,
        "RNN_TANH": _torch_compat.rnn_tanh,
        "RNN_RELU": _torch_compat.rnn_relu,
    }
    # By name, because the list of them may hold what they were before recording began.
    weights = [getattr(module, name) for name in _torch_compat.flat_weight_names(module)]
    output, *finals = _sequence(
        functions[module.mode],
        data,
        lengths,
        states,
        weights,
        bool(module.bias),
        module.num_layers,
        bool(module.bidirectional),
    )
    if back is not None:
        finals = [item.index_select(1, back) for item in finals]
    return PackedSequence(output, sizes, order, back), tuple(finals) if is_lstm else finals[0]


_KINDS: Final[tuple[type[nn.RNNBase], ...]] = (nn.LSTM, nn.GRU, nn.RNN)
_recording = threading.local()
_lock = threading.Lock()
_originals: dict[type[nn.RNNBase], Any] = {}
_users = 0


def _patched(original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: nn.RNNBase, input: Any, hx: Any = None) -> Any:
        recording = getattr(_recording, "depth", 0)
        if recording and isinstance(input, PackedSequence):
            if self.training and self.dropout and self.num_layers > 1:
                raise RuntimeError("dropout between recurrent layers cannot be recorded")
            return _forward_packed(self, input, hx)
        return original(self, input, hx)

    return forward


@contextmanager
def recording() -> Iterator[None]:
    """Let nn.LSTM, GRU and RNN take padded sequences for packed ones, in this thread."""
    global _users
    with _lock:
        if not _users:
            for kind in _KINDS:
                _originals[kind] = kind.__dict__["forward"]
                kind.forward = _patched(kind.__dict__["forward"])
        _users += 1
    _recording.depth = getattr(_recording, "depth", 0) + 1
    try:
        yield
    finally:
        _recording.depth -= 1
        with _lock:
            _users -= 1
            if not _users:
                for kind, original in _originals.items():
                    kind.forward = original
                _originals.clear()
