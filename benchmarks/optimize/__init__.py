"""What ``torchyard.optimize`` brings on whole models that nothing was changed for."""

from __future__ import annotations

__all__: list[str] = []
