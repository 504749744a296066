"""Drop-in modules for ``torch.nn.LSTM``, ``GRU`` and ``RNN``."""

from __future__ import annotations

from torchyard_kernels.nn._recurrent import GRU, LSTM, RNN, from_torch

__all__ = ["GRU", "LSTM", "RNN", "from_torch"]
