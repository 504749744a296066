"""Attention in Metal: what a launch of its kernels needs."""

from __future__ import annotations

from torchyard_mps.attention._forward import forward_launch
from torchyard_mps.attention._launch import Launch

__all__ = ["Launch", "forward_launch"]
