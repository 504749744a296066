"""Products with a weight by Triton kernels: the contract ``linear/1``.

Runs on tensors of any device that Triton compiles for, and on the CPU where TRITON_INTERPRET=1 was
set before this module was imported.
"""

from __future__ import annotations

from torchyard_triton.linear._implementations import offered
from torchyard_triton.linear._product import multiply
from torchyard_triton.linear._tiles import LinearTiles

__all__ = ["LinearTiles", "multiply", "offered"]
