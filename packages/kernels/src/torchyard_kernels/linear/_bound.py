"""Layers whose calls were decided go to their kernel with nothing around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from torch import Tensor

from torchyard import registry
from torchyard_kernels.linear._request import request_of
from torchyard_kernels.linear._weights.packed_weight import PackedWeight
from torchyard_kernels.linear.contract import LINEAR, LinearCall, Packed, WeightSpec
from torchyard_programs import is_undisturbed

if TYPE_CHECKING:
    from torchyard_kernels.linear.contract.bound import BoundProduct

__all__ = ["decide", "served"]

_KEY: Final = f"{LINEAR}: bound"
# Of more rows the way to the kernel costs nothing beside it.
_MOST_ROWS: Final = 16


class _Bound:
    """What a layer's decisions led to.

    Attributes:
        tensors: the weight's, in its order, by which another weight is told.
        products: rows -> the product, where the implementation that was chosen offers one.
    """

    __slots__ = ("products", "tensors")

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.products: dict[int, BoundProduct | None] = {}


def served(weight: PackedWeight, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """Compute a call like one that was decided before; None, without an effect, for any other."""
    known = registry().conclusions().get(_KEY)
    bound = None if known is None else known.get(weight)
    if bound is None:
        return None
    buffers = weight._buffers
    for name, tensor in zip(weight.names, bound.tensors, strict=True):
        if buffers.get(name) is not tensor:
            return None
    product = bound.products.get(x.numel() // weight.shape[1])
    if product is None or not is_undisturbed():
        return None
    found: Tensor | None = product(x, bias)
    return found


def decide(weight: PackedWeight, x: Tensor, bias: Tensor | None) -> None:
    """Let calls like this one be served, where their implementation can."""
    rows = x.numel() // weight.shape[1]
    if not 0 < rows <= _MOST_ROWS:
        return
    # From before the decision: then a change that comes between the two drops it.
    known = registry().conclusions().setdefault(_KEY, WeakKeyDictionary())
    bound = known.get(weight)
    tensors = weight.tensors
    if bound is None or any(a is not b for a, b in zip(bound.tensors, tensors, strict=True)):
        bound = known[weight] = _Bound(tensors)
    if rows in bound.products:
        return
    packed = Packed(WeightSpec.parse(weight.spec_text), tuple(tensors))
    kernel: Any = registry().resolve(LINEAR, request_of(LinearCall(x, packed, bias)))
    bind = getattr(kernel, "bind", None)
    bound.products[rows] = None if bind is None else bind(packed)
