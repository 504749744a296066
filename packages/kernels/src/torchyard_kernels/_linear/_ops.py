"""The op that torch sees: ``torch.ops.torchyard_kernels.linear``.

The choice of implementation is made inside of the op, from sizes and dtypes only, so eager calls,
compiled graphs, exported programs and fake tensors take the same decision.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels._calls import Calls
from torchyard_kernels._linear._errors import PackedGradientError
from torchyard_kernels._linear._formats import unpacked
from torchyard_kernels._linear._request import request_of
from torchyard_kernels.contracts.linear import LINEAR, Linear, LinearCall, Packed, WeightSpec

__all__ = ["CALLS", "product"]

CALLS: Final = Calls(LINEAR)

_LIBRARY: Final = torch.library.Library("torchyard_kernels", "FRAGMENT")  # type: ignore[no-untyped-call]

# weight holds one plain tensor where spec is empty, else the tensors of the spec's format. It is
# [N, K], or [B, N, K] for x [B, M, K].
_SCHEMA: Final = "linear(Tensor x, Tensor[] weight, str spec, Tensor? bias) -> Tensor"

_parsed = lru_cache(maxsize=1024)(WeightSpec.parse)


def product(x: Tensor, weight: list[Tensor], spec: str, bias: Tensor | None) -> Tensor:
    """Call the op."""
    out: Tensor = torch.ops.torchyard_kernels.linear(x, weight, spec, bias)
    return out


def _linear(x: Tensor, weight: list[Tensor], spec: str, bias: Tensor | None) -> Tensor:
    held = Packed(_parsed(spec), tuple(weight)) if spec else weight[0]
    call = LinearCall(x, held, bias)
    chosen: Linear = CALLS.chosen(request_of(call))
    return chosen(call)


def _fake(x: Tensor, weight: list[Tensor], spec: str, bias: Tensor | None) -> Tensor:
    outputs = _parsed(spec).rows if spec else weight[0].shape[-2]
    return x.new_empty((*x.shape[:-1], outputs))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.spec, _ = inputs
    ctx.save_for_backward(x, *weight)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, *weight = ctx.saved_tensors
    wants_x, wants_weight, _, wants_bias = ctx.needs_input_grad
    if ctx.spec and any(wants_weight):
        raise PackedGradientError(
            "linear: the gradient of a packed weight was asked for, which is a constant; pass the "
            "plain weight where it is trained"
        )
    grad_x = grad_weight = grad_bias = None
    if wants_x:
        plain = unpacked(Packed(_parsed(ctx.spec), tuple(weight))) if ctx.spec else weight[0]
        grad_x = product(grad, [plain.mT], "", None)
    if any(wants_weight):
        if weight[0].ndim == 2:
            grad_rows, rows = _as_rows(grad), _as_rows(x)
        else:
            grad_rows, rows = grad, x
        grad_weight = product(grad_rows.mT, [rows.mT], "", None)
    if wants_bias:
        grad_bias = _as_rows(grad).sum(0)
    return grad_x, [grad_weight, *[None] * (len(weight) - 1)], None, grad_bias


def _as_rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


_LIBRARY.define(_SCHEMA)  # type: ignore[no-untyped-call]
_LIBRARY.impl("linear", _linear, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
torch.library.register_fake("torchyard_kernels::linear", _fake, lib=_LIBRARY)
torch.library.register_autograd(
    "torchyard_kernels::linear", _differentiate, setup_context=_setup_context, lib=_LIBRARY
)
