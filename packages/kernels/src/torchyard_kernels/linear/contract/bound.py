"""The shortest way to a kernel of ``linear/1``: a packed weight whose layer keeps what reads it.

The callable that an implementation loads may have a method ``bind``. A layer asks for it once the
registry chose that callable for its calls, and calls what it returns from then on, as long as no
setting that decides changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torchyard_kernels.linear.contract import Packed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Binds", "BoundProduct"]


class BoundProduct(Protocol):
    """A product with one packed weight."""

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """Compute what the implementation does, with the same bits; None where it is not served.

        x is checked: None unless it is of torch.Tensor itself, contiguous, of the weight's dtype
        and depth, on the device, not lazily negated, and not differentiated while gradients are
        recorded. The bias is not: a layer's own, checked when the layer was made.
        """


class Binds(Protocol):
    """A callable of ``linear/1`` that offers it."""

    def bind(self, weight: Packed) -> BoundProduct | None:
        """Return the product with a weight, whose tensors it keeps; None where it has none."""
