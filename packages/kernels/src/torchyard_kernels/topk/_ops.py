"""The ops that torch sees: ``torch.ops.torchyard_kernels.topk`` and ``.segmented_topk``.

The choice of implementation is made inside of the op, from sizes and dtypes only, so eager calls,
compiled graphs, exported programs and fake tensors take the same decision.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import FastPath, decision_cache, is_plain_call
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels._vmap import in_front, one_by_one
from torchyard_kernels.topk._validation import check_bounds
from torchyard_kernels.topk.contract import TOPK, Order, TopKCall, TopKResult

__all__ = ["FAST_PATH", "select"]

# A path takes x, k, dim; perhaps largest, sorted; perhaps a mask, or None and offsets. With three
# arguments it selects the k-th least alone, without its dimension. See KernelPath.
FAST_PATH: Final = FastPath(TOPK)

# dim counts from the front.
_ROWS: Final = (
    "topk(Tensor x, Tensor? mask, SymInt k, int dim, bool largest, str order) -> (Tensor, Tensor)"
)
_SEGMENTS: Final = (
    "segmented_topk(Tensor x, Tensor offsets, SymInt k, bool largest, str order) "
    "-> (Tensor, Tensor)"
)
_LAST: Final = Order.LAST.value
# Whether a path is asked for sorted elements.
_SORTED: Final = {Order.SORTED.value: True, Order.INDEX.value: False}


def select(call: TopKCall) -> tuple[Tensor, Tensor]:
    """Return the result of a call: from the op, or from a kernel where nothing else takes part."""
    x, mask, offsets = call.x, call.mask, call.offsets
    tensors = [tensor for tensor in (x, mask, offsets) if tensor is not None]
    if is_plain_call(tensors) and not (x.requires_grad and torch.is_grad_enabled()):
        return _computed(call)
    found: tuple[Tensor, Tensor]
    if offsets is None:
        last = x.dim() - 1
        found = OPERATORS["topk"](x, mask, call.k, last, call.largest, call.order.value)
    else:
        found = OPERATORS["segmented_topk"](x, offsets, call.k, call.largest, call.order.value)
    return found


def _computed(call: TopKCall) -> TopKResult:
    """Compute a call with the implementation that the registry chooses."""
    if call.offsets is not None:
        check_bounds(call.x, call.offsets)
    request = call.request()
    cache = decision_cache()
    chosen = registry().resolve(TOPK, request)
    FAST_PATH.enable(cache, chosen, request)
    with torch.no_grad():
        result: TopKResult = chosen(call)
    return result


def _topk(
    x: Tensor, mask: Tensor | None, k: int, dim: int, largest: bool, order: str
) -> tuple[Tensor, Tensor]:
    found = _try_fast_path(x, mask, k, dim, largest, order)
    if found is not None:
        return found
    rows = x.movedim(dim, -1)
    rows_mask = None if mask is None else mask.movedim(dim, -1)
    values, indices = _computed(TopKCall(rows, k, largest, Order(order), rows_mask))
    # In the dimension of the argument, contiguous as the fake kernel promises.
    return values.movedim(-1, dim).contiguous(), indices.movedim(-1, dim).contiguous()


def _try_fast_path(
    x: Tensor, mask: Tensor | None, k: int, dim: int, largest: bool, order: str
) -> tuple[Tensor, Tensor] | None:
    if dim != x.dim() - 1:
        # No path reads rows that are not contiguous.
        return None
    if order == _LAST:
        found = None if largest or mask is not None else FAST_PATH.try_call(None, x, k, dim)
        # As kthvalue, which drops the dimension.
        return None if found is None else (found[0].unsqueeze(-1), found[1].unsqueeze(-1))
    ordered = _SORTED.get(order)
    if ordered is None or (mask is not None and mask.dim() != x.dim()):
        return None
    masks = () if mask is None else (mask,)
    selected: tuple[Tensor, Tensor] | None = FAST_PATH.try_call(
        None, x, k, dim, largest, ordered, *masks
    )
    return selected


def _topk_fake(
    x: Tensor, mask: Tensor | None, k: int, dim: int, largest: bool, order: str
) -> tuple[Tensor, Tensor]:
    shape = list(x.shape)
    shape[dim] = 1 if order == Order.LAST else k
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _segmented(
    x: Tensor, offsets: Tensor, k: int, largest: bool, order: str
) -> tuple[Tensor, Tensor]:
    ordered = _SORTED.get(order)
    found: tuple[Tensor, Tensor] | None = (
        None
        if ordered is None
        else FAST_PATH.try_call(None, x, k, -1, largest, ordered, None, offsets)
    )
    if found is not None:
        return found
    return _computed(TopKCall(x, k, largest, Order(order), None, offsets.contiguous()))


def _segmented_fake(
    x: Tensor, offsets: Tensor, k: int, largest: bool, order: str
) -> tuple[Tensor, Tensor]:
    shape = (offsets.shape[0] - 1, 1 if order == Order.LAST else k)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _save_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, mask, _, dim, _, _ = inputs
    _save(ctx, x, output[1])
    ctx.dim, ctx.fills = dim, mask is not None


def _save_segments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _save(ctx, inputs[0], output[1])
    ctx.dim, ctx.fills = 0, True


def _save(ctx: Any, x: Tensor, indices: Tensor) -> None:
    ctx.mark_non_differentiable(indices)
    ctx.save_for_backward(indices)
    ctx.save_for_forward(indices)
    ctx.shape = x.shape


def _scattered(ctx: Any, grad: Tensor) -> Tensor:
    """Return the gradient of x: that of each value at its index; absent ones have none."""
    (indices,) = ctx.saved_tensors
    if ctx.fills:
        grad = torch.where(indices < 0, 0, grad)
        indices = indices.clamp(min=0)
    nothing = grad.new_zeros(ctx.shape)
    if not nothing.numel():
        return nothing
    if len(ctx.shape) < indices.dim():
        grad, indices = grad.reshape(-1), indices.reshape(-1)
    return nothing.scatter_add(ctx.dim, indices, grad)


def _differentiate_rows(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    return _scattered(ctx, grad), None, None, None, None, None


def _differentiate_segments(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    return _scattered(ctx, grad), None, None, None, None


def _gathered(ctx: Any, tangent: Tensor, *_: Any) -> tuple[Tensor, None]:
    """Return the tangents of values: that of x at each index; absent ones have none."""
    (indices,) = ctx.saved_tensors
    if not tangent.numel():
        return tangent.new_zeros(indices.shape), None
    places = indices.clamp(min=0) if ctx.fills else indices
    if len(ctx.shape) < indices.dim():
        found = tangent.gather(0, places.reshape(-1)).reshape(indices.shape)
    else:
        found = tangent.gather(ctx.dim, places)
    return torch.where(indices < 0, 0, found) if ctx.fills else found, None


def _topk_vmap(
    info: Any,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    mask: Tensor | None,
    k: int,
    dim: int,
    largest: bool,
    order: str,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    size = info.batch_size
    x = in_front(x, in_dims[0], size)
    mask = None if mask is None else in_front(mask, in_dims[1], size)
    return OPERATORS["topk"](x, mask, k, dim + 1, largest, order), (0, 0)


def _segmented_vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    return one_by_one(OPERATORS["segmented_topk"], info.batch_size, in_dims, args)


OPERATORS.define(
    _ROWS,
    _topk,
    _topk_fake,
    gradient=_differentiate_rows,
    setup_context=_save_rows,
    jvp=_gathered,
    vmap=_topk_vmap,
)
OPERATORS.define(
    _SEGMENTS,
    _segmented,
    _segmented_fake,
    gradient=_differentiate_segments,
    setup_context=_save_segments,
    jvp=_gathered,
    vmap=_segmented_vmap,
)
