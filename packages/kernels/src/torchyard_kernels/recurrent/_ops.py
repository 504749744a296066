"""The ops that torch sees: ``torch.ops.torchyard_kernels.recurrent`` and its backward.

The choice of implementation is made inside of the op, from sizes and dtypes only, so eager calls,
compiled graphs, exported programs and fake tensors take the same decision. One op holds all steps:
an exported program keeps the number of steps and the batch as symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import FastPath, decision_cache, is_plain_call
from torchyard.torch_compat import deterministic_algorithms
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.recurrent import _transforms
from torchyard_kernels.recurrent._encoding import arguments_of, call_of
from torchyard_kernels.recurrent.contract import (
    BACKWARD,
    FORWARD,
    CellWeights,
    Forward,
    RecurrentCall,
    RecurrentKind,
    RecurrentResult,
    gates,
    reserve_columns,
)
from torchyard_programs import is_transformed

if TYPE_CHECKING:
    from torchyard_kernels.recurrent._packed import PackedRecurrent

__all__ = ["FAST_PATH", "check_lengths", "compute"]

# A path takes the kind, the weights, whether packed weights could be had, the last packed ones or
# None, input, hidden, cell or None, the number of layers, and whether there are two directions. See
# KernelPath.
FAST_PATH: Final = FastPath(FORWARD)

_KINDS: Final = {str(kind): kind for kind in RecurrentKind}

_COMMON: Final = (
    "Tensor input, Tensor hidden, Tensor? cell, Tensor[] weights, Tensor? lengths, "
    "str kind, int num_layers, bool bidirectional"
)
# What a call does not have is an empty tensor in the results.
_FORWARD_SCHEMA: Final = (
    f"recurrent({_COMMON}, bool reserve, str use) -> (Tensor, Tensor, Tensor, Tensor)"
)
_BACKWARD_SCHEMA: Final = (
    f"recurrent_backward({_COMMON}, Tensor reserve, Tensor? grad_output, Tensor? grad_hidden, "
    "Tensor? grad_cell) -> (Tensor, Tensor, Tensor, Tensor[])"
)


def compute(
    call: RecurrentCall, *, packed: PackedRecurrent | None = None, use: str | None = None
) -> RecurrentResult:
    """Return the result of a call: from the op, or from a kernel where nothing else takes part.

    Args:
        call: the call.
        packed: its weights as the user packed them, if so.
        use: the implementation that is demanded, or None.
    """
    tensors = call.tensors
    needs_gradient = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    if is_plain_call(tensors):
        packed = None if needs_gradient else packed
        chosen = _implementation(call, grad=needs_gradient, use=use, packed=packed is not None)
        if packed is not None:
            call = replace(call, packed=packed.of(chosen))
        if not needs_gradient or getattr(chosen, "differentiable", False):
            return chosen(call)
    # Inside of a transform, what vmap wraps does not show that a gradient is wanted.
    reserve = needs_gradient or (torch.is_grad_enabled() and is_transformed())
    found = OPERATORS["recurrent"](*arguments_of(call), reserve, use or "")
    output, hidden, cell, _ = found
    return RecurrentResult(output, hidden, None if call.cell is None else cell)


def _implementation(
    call: RecurrentCall, *, grad: bool, use: str | None, packed: bool = False
) -> Forward:
    """Return the implementation that computes a call.

    Args:
        call: the call.
        grad: whether gradients will be asked for.
        use: the implementation that is demanded, or None.
        packed: whether its weights can be had packed.
    """
    check_lengths(call)
    request = call.request(grad=grad, packed=packed)
    if use is not None:
        return registry().resolve(FORWARD, request, use=use)
    cache = decision_cache()
    chosen: Forward = registry().resolve(FORWARD, request)
    FAST_PATH.enable(cache, chosen, request)
    return chosen


def check_lengths(call: RecurrentCall) -> None:
    """Raise ValueError where a length is not in 1 to T."""
    if call.lengths is None or not call.lengths.numel():
        return
    least, most = (int(value) for value in torch.aminmax(call.lengths))
    steps = call.input.shape[0]
    if least < 1:
        raise ValueError(
            f"lengths: expected at least 1 step in each sequence, got {least}; leave empty "
            "sequences out of the batch"
        )
    if most > steps:
        raise ValueError(f"lengths: expected at most {steps}, the input's steps, got {most}")


def _try_fast_path(*args: Any) -> tuple[Tensor, ...] | None:
    given, hidden, cell, weights, lengths, name, num_layers, bidirectional, reserve, use = args
    kind = _KINDS.get(name)
    if kind is None or lengths is not None or reserve or use or deterministic_algorithms():
        return None
    found = FAST_PATH.try_call(
        None, kind, weights, False, None, given, hidden, cell, num_layers, bidirectional
    )
    if found is None:
        return None
    missing = [given.new_empty(0) for _ in range(4 - len(found))]
    return (*found, *missing)


def _forward(*args: Any) -> tuple[Tensor, ...]:
    found = _try_fast_path(*args)
    if found is not None:
        return found
    *common, reserve, use = args
    call = call_of(common, reserve=reserve)
    result = _implementation(call, grad=reserve, use=use or None)(call)
    nothing = call.input.new_empty(0)
    return (
        result.output,
        result.hidden,
        nothing if result.cell is None else result.cell,
        call.input.new_empty(0) if result.reserve is None else result.reserve,
    )


def _sums_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _forward_fake(*args: Any) -> tuple[Tensor, ...]:
    *common, reserve, _ = args
    call = call_of(common, reserve=reserve)
    steps, batch, _ = call.input.shape
    outputs = call.hidden.shape[2]
    hidden_size = call.weights[0].w_hh.shape[0] // gates(call.kind)
    columns = reserve_columns(call.kind, hidden_size, outputs)
    kept = (len(call.weights), steps, batch, columns) if reserve else (0,)
    return (
        call.input.new_empty((steps, batch, outputs * (2 if call.bidirectional else 1))),
        call.input.new_empty(call.hidden.shape),
        call.input.new_empty((0,) if call.cell is None else call.cell.shape),
        call.input.new_empty(kept, dtype=_sums_dtype(call.input) if reserve else None),
    )


def _backward(*args: Any) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    *common, reserve, grad_output, grad_hidden, grad_cell = args
    call = call_of(common, reserve=True)
    chosen = registry().resolve(BACKWARD, call.request(grad=True))
    grads = chosen(call, reserve, grad_output, grad_hidden, grad_cell)
    return (
        grads.input,
        grads.hidden,
        call.input.new_empty(0) if grads.cell is None else grads.cell,
        [gradient for one in grads.weights for gradient in _present(one)],
    )


def _present(weights: CellWeights) -> list[Tensor]:
    return [weight for weight in weights if weight is not None]


def _backward_fake(*args: Any) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    given, hidden, cell, weights = args[:4]
    return (
        given.new_empty(given.shape),
        hidden.new_empty(hidden.shape),
        given.new_empty((0,) if cell is None else cell.shape),
        [weight.new_empty(weight.shape) for weight in weights],
    )


def _isolated(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with torch.no_grad():
            return kernel(*args)

    return run


OPERATORS.define(
    _FORWARD_SCHEMA,
    _isolated(_forward),
    _forward_fake,
    gradient=_transforms.differentiate,
    setup_context=_transforms.setup_context,
    jvp=_transforms.push_forward,
    vmap=_transforms.batched,
    called="lstm, gru or rnn",
)
OPERATORS.define(
    _BACKWARD_SCHEMA,
    _isolated(_backward),
    _backward_fake,
    gradient=_transforms.differentiate_gradients,
    setup_context=_transforms.setup_gradients,
    jvp=_transforms.push_gradients_forward,
    vmap=_transforms.batched_gradients,
    called="a gradient of lstm, gru or rnn",
)
