"""Attention in Metal: what a launch of its kernels needs."""

from __future__ import annotations

from torchyard_mps._launch import Launch
from torchyard_mps.attention._forward import forward_launch

__all__ = ["Launch", "forward_launch"]
