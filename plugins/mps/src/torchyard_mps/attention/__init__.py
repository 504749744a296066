"""Attention in Metal: its forward, decoding, and its gradients, as launches of kernels."""

from __future__ import annotations

from torchyard_mps._launch import Launch
from torchyard_mps.attention._backward import backward
from torchyard_mps.attention._forward import forward, forward_launches
from torchyard_mps.attention._programs import lacking_of_program

__all__ = ["Launch", "backward", "forward", "forward_launches", "lacking_of_program"]
