"""The op that torch sees: ``torch.ops.torchyard_kernels.linear``.

The choice of implementation is made inside of the op, from sizes and dtypes only, so eager calls,
compiled graphs, exported programs and fake tensors take the same decision.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NoReturn

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import FastPath, decision_cache, is_plain_call
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.linear._formats.table import unpacked
from torchyard_kernels.linear._functions.function import EPILOGUE, GATED, PROLOGUE, Recorded
from torchyard_kernels.linear._transforms import (
    as_rows,
    batched,
    product,
    refuse_packed_gradient,
    tangent,
)
from torchyard_kernels.linear._tuning import active, tune
from torchyard_kernels.linear.contract import (
    LINEAR,
    PLAIN_WEIGHT,
    SECOND_FACTOR,
    Linear,
    LinearCall,
    LinearRequest,
    Packed,
    WeightSpec,
)
from torchyard_programs import stored

__all__ = ["FAST_PATH", "arguments_of", "compute"]

# The key is None for a plain weight and for panels; the spec's text for weights of another format;
# or, for a product with functions, the texts of both and whether the second takes halves.
#
# A path takes x; the weight's tensor, for another format than panels all of its tensors; the form:
# (N, K) of panels, PLAIN_WEIGHT, SECOND_FACTOR, or None; the bias or None. With functions it also
# takes what each captured, as two tuples. See KernelPath.
FAST_PATH: Final = FastPath(LINEAR)

# weight holds one plain tensor where spec is empty, else the tensors of the spec's format. It is
# [N, K], or [B, N, K] for x [B, M, K].
_SCHEMA: Final = "linear(Tensor x, Tensor[] weight, str spec, Tensor? bias) -> Tensor"
# An empty text: no function. A list with nothing in it is None, because an AOTInductor package
# hands an op no list for an empty one.
_FUSED: Final = (
    "linear_fused(Tensor x, Tensor[] weight, str spec, Tensor? bias, "
    "str prologue, Tensor[]? prologue_captured, str epilogue, Tensor[]? epilogue_captured, "
    "bool gated) -> Tensor"
)


def compute(call: LinearCall) -> Tensor:
    """Return the result of a call: from the op, or from a kernel where nothing else takes part.

    The op for functions has no gradient.
    """
    tensors = call.tensors
    if is_plain_call(tensors) and not (
        torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    ):
        return _computed(call)
    before, after = call.prologue, call.epilogue
    name = "linear" if before is None and after is None else "linear_fused"
    out: Tensor = OPERATORS[name](*arguments_of(call))
    return out


def arguments_of(call: LinearCall) -> list[Any]:
    """Return a call as the arguments of an op; :func:`_call` is the way back."""
    weight, before, after = call.weight, call.prologue, call.epilogue
    if isinstance(weight, Packed):
        found: list[Any] = [call.x, list(weight.tensors), weight.spec.text, call.bias]
    else:
        found = [call.x, [weight], "", call.bias]
    if before is None and after is None:
        return found
    for function in (before, after):
        found += ["", None] if function is None else [function.text, list(function.captured)]
        found[-1] = found[-1] or None
    return [*found, call.gated]


def _call(
    x: Tensor,
    weight: list[Tensor],
    spec: str,
    bias: Tensor | None,
    before: str = "",
    before_captured: list[Tensor] | None = None,
    after: str = "",
    after_captured: list[Tensor] | None = None,
    gated: bool = False,
) -> LinearCall:
    """Return the call of an op's arguments."""
    return LinearCall(
        x,
        Packed(WeightSpec.parse(spec), tuple(weight)) if spec else weight[0],
        bias,
        Recorded(before, stored(before_captured), PROLOGUE) if before else None,
        Recorded(after, stored(after_captured), GATED if gated else EPILOGUE) if after else None,
    )


def _checked(call: LinearCall) -> LinearCall:
    """Return a call, checked: its functions are pointwise."""
    for function in (call.prologue, call.epilogue):
        if isinstance(function, Recorded):
            function.check(call.x.dtype)
    return call


def _computed(call: LinearCall) -> Tensor:
    """Compute a call with the implementation that the registry chooses."""
    request = _checked(call).request()
    if active() is not None:
        tune(call, request)
    cache = decision_cache()
    chosen: Linear = registry().resolve(LINEAR, request)
    FAST_PATH.enable(cache, chosen, request, key=_key(call, request))
    with torch.no_grad():
        return chosen(call)


def _key(call: LinearCall, request: LinearRequest) -> Any:
    """Return the key of a call's fast path."""
    if request.prologue or request.epilogue:
        return request.prologue, request.epilogue, request.gated
    weight = call.weight
    if isinstance(weight, Packed) and weight.spec.format != "panels":
        return weight.spec.text
    return None


@lru_cache(maxsize=1024)
def _form(spec: str) -> tuple[int, int] | int | None:
    """Return the form of a weight, see FAST_PATH."""
    if not spec:
        return PLAIN_WEIGHT
    parsed = WeightSpec.parse(spec)
    return (parsed.rows, parsed.columns) if parsed.format == "panels" else None


def _try_fused(*args: Any) -> Tensor | None:
    x, weight, spec, bias, before, before_captured, after, after_captured, gated = args
    form = _form(spec)
    if form is None:
        return None
    found: Tensor | None = FAST_PATH.try_call(
        (before, after, gated),
        x,
        weight[0],
        form,
        bias,
        tuple(before_captured or ()),
        tuple(after_captured or ()),
    )
    return found


def _try_product(x: Tensor, weight: list[Tensor], spec: str, bias: Tensor | None) -> Tensor | None:
    form = _form(spec)
    key: str | None = None
    data: Any = weight[0]
    if form is None:
        key, data = spec, tuple(weight)
    elif form == PLAIN_WEIGHT and data.ndim == 3:
        data, form = data.mT, SECOND_FACTOR
    found: Tensor | None = FAST_PATH.try_call(key, x, data, form, bias)
    return found


def _fused(*args: Any) -> Tensor:
    found = None if active() is not None else _try_fused(*args)
    return _computed(_call(*args)) if found is None else found


def _fused_fake(*args: Any) -> Tensor:
    call = _checked(_call(*args))
    dtype = call.x.dtype if call.epilogue is None else call.epilogue.dtype(call.x.dtype)
    return call.x.new_empty(call.result_shape(), dtype=dtype)


def _refuse_gradient(ctx: Any, grad: Tensor) -> NoReturn:
    raise RuntimeError(
        "torchyard_kernels::linear_fused has no gradient; linear() runs functions beside the "
        "product where gradients are recorded"
    )


def _linear(*args: Any) -> Tensor:
    found = None if active() is not None else _try_product(*args)
    return _computed(_call(*args)) if found is None else found


def _fake(*args: Any) -> Tensor:
    call = _call(*args)
    return call.x.new_empty(call.result_shape())


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.spec, _ = inputs
    ctx.save_for_backward(x, *weight)
    ctx.save_for_forward(x, *weight)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return None, None, None, None
    x, *weight = ctx.saved_tensors
    wants_x, wants_weight, _, wants_bias = ctx.needs_input_grad
    if ctx.spec and any(wants_weight):
        refuse_packed_gradient()
    grad_x = grad_weight = grad_bias = None
    if wants_x:
        grad_x = product(grad, [_plain(ctx.spec, weight).mT], "", None)
    if any(wants_weight):
        if weight[0].ndim == 2:
            grad_rows, rows = as_rows(grad), as_rows(x)
        else:
            grad_rows, rows = grad, x
        grad_weight = product(grad_rows.mT, [rows.mT], "", None)
    if wants_bias:
        grad_bias = as_rows(grad).sum(0)
    return grad_x, [grad_weight, *[None] * (len(weight) - 1)], None, grad_bias


def _push_forward(
    ctx: Any, of_x: Tensor | None, of_weight: list[Tensor | None], _: Any, of_bias: Tensor | None
) -> Tensor | None:
    x, *weight = ctx.saved_tensors
    if ctx.spec and any(part is not None for part in of_weight):
        refuse_packed_gradient()
    moved = None if ctx.spec else of_weight[0]
    return tangent(x, _plain(ctx.spec, weight), of_x, moved, of_bias)


def _plain(spec: str, weight: list[Tensor]) -> Tensor:
    return unpacked(Packed(WeightSpec.parse(spec), tuple(weight))) if spec else weight[0]


OPERATORS.define(
    _SCHEMA,
    _linear,
    _fake,
    gradient=_differentiate,
    setup_context=_setup_context,
    jvp=_push_forward,
    vmap=batched,
)
# Without derivatives: linear() composes functions with the product where a gradient is wanted or a
# transform is active.
OPERATORS.define(
    _FUSED, _fused, _fused_fake, gradient=_refuse_gradient, called="linear with functions"
)
