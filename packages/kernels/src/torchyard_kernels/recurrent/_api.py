"""``lstm``, ``gru`` and ``rnn``: torch's recurrent layers as functions of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any, Final, Literal

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from torchyard import arguments, note_use
from torchyard.torch_compat import deterministic_algorithms, is_autocast_enabled_anywhere
from torchyard_kernels._autocast import cast, is_cast
from torchyard_kernels.recurrent._ops import FAST_PATH, compute
from torchyard_kernels.recurrent._outputs import LstmOutput, LstmState, RecurrentOutput
from torchyard_kernels.recurrent._packed import PackedRecurrent
from torchyard_kernels.recurrent._validation import (
    check_input,
    check_lengths_form,
    check_state,
    checked_cells,
    listed_weights,
)
from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    RecurrentResult,
    gates,
)

__all__ = ["gru", "lstm", "rnn"]

_new = tuple.__new__
# Deeper stacks are a mistake.
_MOST_LAYERS: Final = 1 << 12
_PAIRS: Final = (tuple, list)


def lstm(
    input: Tensor,
    state: tuple[Tensor, Tensor] | None,
    weights: Sequence[Tensor] | PackedRecurrent,
    *,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
    lengths: Tensor | None = None,
    dropout: float = 0.0,
    training: bool = False,
    implementation: str | None = None,
) -> LstmOutput:
    """Run LSTM layers over sequences; what ``torch.nn.LSTM`` computes, from its weights.

    With T steps, B sequences, I inputs, H hidden units, P = H or the size after projection, and D
    directions. Sums, gates and the cell state are float32 (float64 for float64) whatever the dtype.

    Args:
        input: [T, B, I]; [B, T, I] with batch_first; or one sequence [T, I]. float32, bfloat16,
            float16 or float64.
        state: hidden [layers * D, B, P] and cell [layers * D, B, H], without B for one sequence;
            None: zeros. The state that a call returns continues its sequences in the next.
        weights: in torch's order: for each layer and direction weight_ih [4 H, I of the layer],
            weight_hh [4 H, P], bias_ih and bias_hh [4 H] or neither, and weight_hr [P, H] where
            there is a projection; or those packed once by :class:`PackedRecurrent`.
        num_layers, bidirectional: of the weights; with packed ones they are known.
        batch_first: whether input and output are [B, T, ...].
        lengths: steps of each sequence, int64 [B] on the CPU, in any order; None: all T. Beyond
            its length a sequence puts out 0, and its state is that after its last step.
        dropout: the share of each layer's outputs but the last's that is dropped while training.
        training: whether dropout is applied. Layers then run one by one.
        implementation: demand this one, by name.

    Under :class:`torch.autocast` input, state and weights are cast, as torch casts an LSTM's;
    where the weights are packed, input and state to their dtype.

    Returns:
        The output, in the input's dtype, and the state after the last step.

    Raises:
        TypeError: dtypes or devices differ, or a type is wrong.
        ValueError: a shape or a length does not fit; the message names the argument.
        UnsupportedError: no implementation supports the call.
    """
    hidden, cell = state if type(state) is tuple and len(state) == 2 else _pair(state)
    if lengths is None and implementation is None and _drops_nothing(dropout, training):
        found = _try_fast_path(
            RecurrentKind.LSTM, input, hidden, cell, weights, num_layers, bidirectional, batch_first
        )
        if found is not None:
            # A named tuple's own constructor costs three times as much.
            output, last, memory = found
            return _new(LstmOutput, (output, _new(LstmState, (last, memory))))
    run = _Layers(RecurrentKind.LSTM, input, weights, num_layers, bidirectional, batch_first)
    result = run(hidden, cell, lengths, _share("lstm", dropout, training), implementation)
    assert result.cell is not None
    return LstmOutput(result.output, LstmState(result.hidden, result.cell))


def gru(
    input: Tensor,
    state: Tensor | None,
    weights: Sequence[Tensor] | PackedRecurrent,
    *,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
    lengths: Tensor | None = None,
    dropout: float = 0.0,
    training: bool = False,
    implementation: str | None = None,
) -> RecurrentOutput:
    """Run GRU layers over sequences; what ``torch.nn.GRU`` computes, from its weights.

    The reset gate is applied after the recurrent product, as torch does. Arguments as for
    :func:`lstm`, with weights of [3 H, ...] and a state of one tensor, [layers * D, B, H].
    """
    if lengths is None and implementation is None and _drops_nothing(dropout, training):
        found = _try_fast_path(
            RecurrentKind.GRU, input, state, None, weights, num_layers, bidirectional, batch_first
        )
        if found is not None:
            return _new(RecurrentOutput, found)
    run = _Layers(RecurrentKind.GRU, input, weights, num_layers, bidirectional, batch_first)
    result = run(state, None, lengths, _share("gru", dropout, training), implementation)
    return RecurrentOutput(result.output, result.hidden)


def rnn(
    input: Tensor,
    state: Tensor | None,
    weights: Sequence[Tensor] | PackedRecurrent,
    *,
    nonlinearity: Literal["tanh", "relu"] = "tanh",
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
    lengths: Tensor | None = None,
    dropout: float = 0.0,
    training: bool = False,
    implementation: str | None = None,
) -> RecurrentOutput:
    """Run plain recurrent layers over sequences; what ``torch.nn.RNN`` computes, from its weights.

    Arguments as for :func:`lstm`, with weights of [H, ...], a state of one tensor,
    [layers * D, B, H], and the nonlinearity: ``tanh`` or ``relu``.
    """
    kinds = {"tanh": RecurrentKind.RNN_TANH, "relu": RecurrentKind.RNN_RELU}
    kind = kinds[arguments.choice("rnn", "nonlinearity", nonlinearity, kinds)]
    if lengths is None and implementation is None and _drops_nothing(dropout, training):
        found = _try_fast_path(
            kind, input, state, None, weights, num_layers, bidirectional, batch_first
        )
        if found is not None:
            return _new(RecurrentOutput, found)
    run = _Layers(kind, input, weights, num_layers, bidirectional, batch_first)
    result = run(state, None, lengths, _share("rnn", dropout, training), implementation)
    return RecurrentOutput(result.output, result.hidden)


def _try_fast_path(
    kind: RecurrentKind,
    input: Any,
    hidden: Tensor | None,
    cell: Tensor | None,
    weights: Any,
    num_layers: Any,
    bidirectional: Any,
    batch_first: Any,
) -> tuple[Tensor, ...] | None:
    """Return output, hidden and an LSTM's cell by the fast path; None, without an effect, where it
    does not compute the call.

    Nothing is assumed of the arguments. The caller makes sure that there is nothing else to the
    call, such as lengths.
    """
    if is_dynamo_compiling() or hidden is None or deterministic_algorithms():
        return None
    # Other values that count as these are refused where calls are checked.
    if type(num_layers) is not int or num_layers >> 12:
        return None
    if type(bidirectional) is not bool or type(batch_first) is not bool:
        return None
    packed = isinstance(weights, PackedRecurrent)
    latest = None
    if packed:
        # A kernel cannot see from packed weights whether they require gradients.
        if weights.kind is not kind or torch.is_grad_enabled():
            return None
        latest = weights.latest()
        num_layers, bidirectional = weights.num_layers, weights.bidirectional
        weights = weights.weights
    if batch_first:
        if not isinstance(input, Tensor) or input.ndim != 3:
            return None
        input = input.transpose(0, 1)
    found: tuple[Tensor, ...] | None = FAST_PATH.try_call(
        None, kind, weights, packed, latest, input, hidden, cell, num_layers, bidirectional
    )
    if found is None or not batch_first:
        return found
    return (found[0].transpose(0, 1), *found[1:])


def _name(kind: RecurrentKind) -> str:
    """Return the function's name."""
    if kind is RecurrentKind.LSTM:
        return "lstm"
    return "gru" if kind is RecurrentKind.GRU else "rnn"


def _drops_nothing(dropout: Any, training: object) -> bool:
    """Return whether nothing is dropped; False where either is still to be refused."""
    fits = (type(dropout) is float or type(dropout) is int) and 0 <= dropout <= 1
    return fits and (training is False or (training is True and dropout == 0))


def _share(of: str, dropout: float, training: bool) -> float:
    """Return the share that is dropped."""
    dropout = arguments.number(of, "dropout", dropout, least=0, most=1)
    return dropout if arguments.boolean(of, "training", training) else 0.0


def _pair(state: object) -> tuple[Any, Any]:
    if state is None:
        return None, None
    if not isinstance(state, _PAIRS) or len(state) != 2:
        raise arguments.wrong_kind("lstm", "state", "(hidden, cell) or None", state)
    return state[0], state[1]


class _Layers:
    """A call's layers, checked.

    Args:
        kind: the equations.
        input, weights, num_layers, bidirectional, batch_first: as given.
    """

    def __init__(
        self,
        kind: RecurrentKind,
        input: Tensor,
        weights: Sequence[Tensor] | PackedRecurrent,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> None:
        self._of = of = _name(kind)
        batch_first = arguments.boolean(of, "batch_first", batch_first)
        self._packed = weights if isinstance(weights, PackedRecurrent) else None
        if isinstance(weights, PackedRecurrent):
            if weights.kind is not kind:
                raise ValueError(
                    f"{of}: weights: expected those of {kind}, got those of {weights.kind}"
                )
            num_layers, bidirectional = weights.num_layers, weights.bidirectional
            weights = weights.weights
        else:
            num_layers = arguments.integer(of, "num_layers", num_layers, least=1, most=_MOST_LAYERS)
            bidirectional = arguments.boolean(of, "bidirectional", bidirectional)
        check_input(of, input)
        self._cast: torch.dtype | None = None
        if (is_dynamo_compiling() or is_autocast_enabled_anywhere()) and is_cast(input):
            self._cast = torch.get_autocast_dtype(input.device.type)
            if self._packed is None:
                weights = cast(self._cast, *listed_weights(of, weights))
            else:
                self._cast = self._packed.weights[0].dtype
            (input,) = cast(self._cast, input)
        self._kind = kind
        self._weights = listed_weights(of, weights)
        self._cells = checked_cells(of, kind, input, self._weights, num_layers, bidirectional)
        self._layers = num_layers
        self._directions = 2 if bidirectional else 1
        self._single = input.ndim == 2
        self._batch_first = batch_first and not self._single
        if self._single:
            self._input = input.unsqueeze(1)
        else:
            self._input = input.transpose(0, 1) if batch_first else input
        if self._input.shape[0] == 0:
            raise ValueError(f"{of}: input: expected at least 1 step, got 0")

    def __call__(
        self,
        hidden: Tensor | None,
        cell: Tensor | None,
        lengths: Tensor | None,
        dropout: float,
        use: str | None,
    ) -> RecurrentResult:
        """Return the outputs in the form of the input."""
        if use is not None:
            arguments.text(self._of, "implementation", use)
        if not torch.compiler.is_compiling():
            _note_use(self._input.device.type)
        if self._cast is not None:
            hidden, cell = cast(self._cast, hidden, cell)
        batch = self._input.shape[1]
        w_hh = self._cells[0].w_hh
        hidden = self._state("state", hidden, batch, w_hh.shape[1])
        if self._kind is RecurrentKind.LSTM:
            cell = self._state("state[1]", cell, batch, w_hh.shape[0] // gates(self._kind))
        if lengths is not None:
            check_lengths_form(self._of, lengths, batch)
        with (
            nullcontext()
            if self._cast is None
            else torch.autocast(self._input.device.type, enabled=False)
        ):
            if dropout > 0 and self._layers > 1:
                result = self._one_by_one(hidden, cell, lengths, dropout, use)
            else:
                result = self._run(
                    self._input, hidden, cell, self._cells, self._layers, lengths, use
                )
        output, hidden, cell = result.output, result.hidden, result.cell
        if self._single:
            output, hidden = output.squeeze(1), hidden.squeeze(1)
            cell = None if cell is None else cell.squeeze(1)
        elif self._batch_first:
            output = output.transpose(0, 1)
        return RecurrentResult(output, hidden, cell)

    def _state(self, name: str, state: Tensor | None, batch: int, size: int) -> Tensor:
        count = self._layers * self._directions
        if state is None:
            return self._input.new_zeros((count, batch, size))
        wanted = (count, size) if self._single else (count, batch, size)
        check_state(self._of, name, state, self._input, wanted)
        return state.unsqueeze(1) if self._single else state

    def _one_by_one(
        self,
        hidden: Tensor,
        cell: Tensor | None,
        lengths: Tensor | None,
        dropout: float,
        use: str | None,
    ) -> RecurrentResult:
        """Run layer by layer, and drop some of each one's outputs."""
        values, results = self._input, []
        for layer in range(self._layers):
            if layer > 0:
                values = torch.nn.functional.dropout(values, dropout, training=True)
            part = slice(layer * self._directions, (layer + 1) * self._directions)
            state = None if cell is None else cell[part]
            result = self._run(values, hidden[part], state, self._cells[part], 1, lengths, use)
            values = result.output
            results.append(result)
        cells_at_end = [result.cell for result in results if result.cell is not None]
        return RecurrentResult(
            values,
            torch.cat([result.hidden for result in results]),
            torch.cat(cells_at_end) if cells_at_end else None,
        )

    def _run(
        self,
        values: Tensor,
        hidden: Tensor,
        cell: Tensor | None,
        cells: tuple[CellWeights, ...],
        layers: int,
        lengths: Tensor | None,
        use: str | None,
    ) -> RecurrentResult:
        bidirectional = self._directions == 2
        call = RecurrentCall(
            self._kind, values, hidden, cell, cells, layers, bidirectional, lengths
        )
        # Of some of the layers alone nothing was packed.
        packed = self._packed if cells is self._cells else None
        return compute(call, packed=packed, use=use)


# Without a frame of ours, so that the warning names the caller's line.
_note_use = cache(partial(note_use, "kernels.recurrent"))
