"""Attention by Triton kernels: the contracts ``attention/1`` and ``attention_backward/1``.

Runs on tensors of any device that Triton compiles for, and on the CPU where TRITON_INTERPRET=1 was
set before this module was imported.
"""

from __future__ import annotations

from torchyard_triton.attention._backward import backward
from torchyard_triton.attention._decode import Packed, decode, decodes, varlen
from torchyard_triton.attention._forward import forward
from torchyard_triton.attention._launch import Tiles

__all__ = ["Packed", "Tiles", "backward", "decode", "decodes", "forward", "varlen"]
