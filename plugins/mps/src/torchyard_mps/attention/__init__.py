"""Attention in Metal: what a launch of its kernels needs."""

from __future__ import annotations

from torchyard_mps._launch import Launch
from torchyard_mps.attention._forward import forward_launch, lacking_of_program

__all__ = ["Launch", "forward_launch", "lacking_of_program"]
