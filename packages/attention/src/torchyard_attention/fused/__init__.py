"""What adapters of fused kernels share: torch's and libraries', on devices of any vendor.

Such kernels differ in how they align a causal mask where rows and keys are not as many, and
multiply hidden values by 0, which leaves NaN of what is not finite.
"""

from __future__ import annotations

from torchyard_attention.fused._exact import exact_backward, exact_forward, finite
from torchyard_attention.fused._pieces import Piece, pieces

__all__ = ["Piece", "exact_backward", "exact_forward", "finite", "pieces"]
