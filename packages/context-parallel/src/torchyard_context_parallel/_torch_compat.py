"""What torch does not publish and this package uses of it.

No other module of the package names a private part of torch. Tried on torch 2.13.
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["version_of"]


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place.

    Without it: an AttributeError where a mask that captures tensors is given.
    """
    return int(tensor._version)
