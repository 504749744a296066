"""torch's own recurrent layers, where ``recurrent.supports_torch`` says that they are the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from torchyard_cpu._tensor_reader import NativePath
from torchyard_cpu.recurrent._forward import recurrent_path
from torchyard_kernels.recurrent.contract import (
    RecurrentCall,
    RecurrentKind,
    RecurrentRequest,
    RecurrentResult,
)

__all__ = ["TorchLayers"]

_FUNCTIONS: Final[dict[RecurrentKind, Callable[..., Any]]] = {
    RecurrentKind.LSTM: torch.lstm,
    RecurrentKind.GRU: torch.gru,
    RecurrentKind.RNN_TANH: torch.rnn_tanh,
    RecurrentKind.RNN_RELU: torch.rnn_relu,
}


class TorchLayers:
    """``torch.lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``; torch differentiates them."""

    differentiable = True

    def fast_path(self, request: RecurrentRequest) -> NativePath | None:
        """Return a path with nothing enabled; see ``torchyard.dispatch.OffersFastPath``."""
        return recurrent_path(tuple(_FUNCTIONS[kind] for kind in RecurrentKind))

    def __call__(self, call: RecurrentCall) -> RecurrentResult:
        """Compute the outputs of a call without lengths."""
        weights = [weight for cell in call.weights for weight in cell if weight is not None]
        biased = call.weights[0].b_ih is not None
        state: Any = call.hidden if call.cell is None else (call.hidden, call.cell)
        layers = (biased, call.num_layers, 0.0, False, call.bidirectional, False)
        return RecurrentResult(*_FUNCTIONS[call.kind](call.input, state, weights, *layers))
