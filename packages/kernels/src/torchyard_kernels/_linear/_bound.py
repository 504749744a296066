"""Layers whose calls were decided go to their kernel with nothing around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from torch import Tensor

from torchyard import registry
from torchyard_kernels._linear._packed_weight import PackedWeight
from torchyard_kernels._linear._request import request_of
from torchyard_kernels.contracts.linear import LINEAR, LinearCall, Packed, WeightSpec
from torchyard_programs import is_undisturbed

if TYPE_CHECKING:
    from torchyard_kernels.contracts.bound import BoundProduct

__all__ = ["decide", "served"]

_KEY: Final = f"{LINEAR}: bound"
# Of more rows the way to the kernel costs nothing beside it.
_MOST_ROWS: Final = 16


class _Bound:
    """What a layer's decisions led to.

    Attributes:
        data: the weight's first tensor, by which a moved weight is told.
        products: rows -> the product, where the implementation that was chosen offers one.
    """

    __slots__ = ("data", "products")

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.products: dict[int, BoundProduct | None] = {}


def served(weight: PackedWeight, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """Compute a call like one that was decided before; None, without an effect, for any other."""
    known = registry().conclusions().get(_KEY)
    bound = None if known is None else known.get(weight)
    if bound is None or bound.data is not weight._buffers["data"]:
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
    data = weight.get_buffer("data")
    if bound is None or bound.data is not data:
        bound = known[weight] = _Bound(data)
    if rows in bound.products:
        return
    packed = Packed(WeightSpec.parse(weight.spec_text), tuple(weight.tensors))
    kernel: Any = registry().resolve(LINEAR, request_of(LinearCall(x, packed, bias)))
    bind = getattr(kernel, "bind", None)
    bound.products[rows] = None if bind is None else bind(packed)
