"""Triton functions that generated code and kernels call. Importing any of them imports triton."""

from __future__ import annotations

__all__: list[str] = []
