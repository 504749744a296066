"""Pointwise functions over lists of tensors by one kernel: the contract ``pointwise/1``.

Runs on tensors of any device that Triton compiles for, and on the CPU where TRITON_INTERPRET=1 was
set before this module was imported.
"""

from __future__ import annotations

from torchyard_triton.pointwise._implementations import offered
from torchyard_triton.pointwise._map import compute

__all__ = ["compute", "offered"]
