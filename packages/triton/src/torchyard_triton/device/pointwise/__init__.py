"""What kernels over lists of tensors read and write, from a table of addresses."""

from __future__ import annotations

__all__: list[str] = []
