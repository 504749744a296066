"""torch's own LSTM, which runs by oneDNN where ``recurrent.supports_onednn`` says yes."""

from __future__ import annotations

import torch

from torchyard_kernels.contracts.recurrent import RecurrentCall, RecurrentResult

__all__ = ["OnednnLstm"]


class OnednnLstm:
    """``torch.lstm``; torch differentiates it."""

    differentiable = True

    def __call__(self, call: RecurrentCall) -> RecurrentResult:
        """Compute the outputs."""
        assert call.cell is not None
        weights = [weight for cell in call.weights for weight in cell if weight is not None]
        biased = call.weights[0].b_ih is not None
        output, hidden, cell = torch.lstm(
            call.input,
            (call.hidden, call.cell),
            weights,
            biased,
            call.num_layers,
            0.0,
            False,
            call.bidirectional,
            False,
        )
        return RecurrentResult(output, hidden, cell)
