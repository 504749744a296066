"""The first k of each row by Triton kernels: the contract ``topk/1``.

Runs on tensors of any device that Triton compiles for, and on the CPU where TRITON_INTERPRET=1 was
set before this module was imported.
"""

from __future__ import annotations

from torchyard_triton.topk._implementations import offered
from torchyard_triton.topk._selection import select

__all__ = ["offered", "select"]
