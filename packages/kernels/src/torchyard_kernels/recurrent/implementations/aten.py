"""kernels.aten: torch's own recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.recurrent.contract import RecurrentCall, RecurrentKind, RecurrentResult

__all__ = ["Aten"]

_FUNCTIONS: Final[dict[RecurrentKind, Callable[..., Any]]] = {
    RecurrentKind.LSTM: torch.lstm,
    RecurrentKind.GRU: torch.gru,
    RecurrentKind.RNN_TANH: torch.rnn_tanh,
    RecurrentKind.RNN_RELU: torch.rnn_relu,
}


class Aten:
    """torch.lstm, gru, rnn_tanh or rnn_relu; torch differentiates what they do."""

    differentiable = True

    def __call__(self, call: RecurrentCall) -> RecurrentResult:
        """Compute the outputs."""
        weights = [w for cell in call.weights for w in cell if w is not None]
        biased = call.weights[0].b_ih is not None
        state: Any = call.hidden if call.cell is None else (call.hidden, call.cell)
        layers = (biased, call.num_layers, 0.0, False, call.bidirectional)
        if call.lengths is None:
            return _named(_FUNCTIONS[call.kind](call.input, state, weights, *layers, False))
        return self._ragged(call, weights, layers)

    def _ragged(
        self, call: RecurrentCall, weights: list[Tensor], layers: tuple[Any, ...]
    ) -> RecurrentResult:
        """Run on the steps that there are; sequences longest first, as torch wants them."""
        assert call.lengths is not None
        lengths, order = torch.sort(call.lengths, descending=True)
        order = order.to(call.input.device)
        packed = torch.nn.utils.rnn.pack_padded_sequence(call.input.index_select(1, order), lengths)
        hidden = call.hidden.index_select(1, order)
        state: Any = hidden if call.cell is None else (hidden, call.cell.index_select(1, order))
        function = _FUNCTIONS[call.kind]
        outputs = function(packed.data, packed.batch_sizes, state, weights, *layers)
        result = _named(outputs)
        padded, _ = torch.nn.utils.rnn.pad_packed_sequence(
            packed._replace(data=result.output), total_length=call.input.shape[0]
        )
        back = torch.argsort(order)
        return RecurrentResult(
            padded.index_select(1, back),
            result.hidden.index_select(1, back),
            None if result.cell is None else result.cell.index_select(1, back),
        )


def _named(outputs: Sequence[Tensor]) -> RecurrentResult:
    return RecurrentResult(*outputs)
