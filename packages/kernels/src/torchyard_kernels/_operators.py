"""The package's ops, as torch sees them: ``torch.ops.torchyard_kernels.*``."""

from __future__ import annotations

from typing import Final

from torchyard import Operators

__all__ = ["OPERATORS"]

OPERATORS: Final = Operators("torchyard_kernels", ["torchyard_kernels", "torchyard_programs"])
