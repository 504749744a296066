"""Recurrent layers by Triton kernels: ``recurrent/1`` and ``recurrent_backward/1``.

Runs on tensors of any device that Triton compiles for, and on the CPU where TRITON_INTERPRET=1 was
set before this module was imported. Each step is one launch, without any transfer: a graph of them
can be recorded.
"""

from __future__ import annotations

from torchyard_triton.recurrent._backward import backward
from torchyard_triton.recurrent._forward import forward
from torchyard_triton.recurrent._implementations import offered
from torchyard_triton.recurrent._tiles import StepTiles

__all__ = ["StepTiles", "backward", "forward", "offered"]
