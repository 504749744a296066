"""The package's ops, as torch sees them: ``torch.ops.torchyard_attention.*``."""

from __future__ import annotations

from typing import Final

from torchyard import Operators

__all__ = ["OPERATORS"]

OPERATORS: Final = Operators("torchyard_attention", ["torchyard_attention", "torchyard_programs"])
