"""The forward and backward ops: ``torch.ops.torchyard_attention.forward`` and ``.backward``."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

from torchyard_attention._mods._trace import lse_dtype
from torchyard_attention._ops._arguments import (
    COMMON,
    COMMON_SCHEMA,
    DROPOUT_SCHEMA,
    dropout_arguments,
    flattened,
    rebuilt,
)
from torchyard_attention._ops._computation import (
    gradients,
    op_outputs,
    outputs,
    try_op,
    with_lasting_text,
)
from torchyard_attention._ops._layout import empty_in_order
from torchyard_attention._ops._operators import OPERATORS, isolated
from torchyard_attention._ops._transforms import _functions
from torchyard_attention.contract import AttentionCall, AttentionResult

__all__ = ["dispatched"]

# The backward returns gradients of those captured tensors alone that captured_grad marks.
_FORWARD_SCHEMA: Final = (
    f"forward({COMMON_SCHEMA}, bool lse, bool max_scores, bool grad, str use, {DROPOUT_SCHEMA}) "
    "-> (Tensor, Tensor, Tensor)"
)
_BACKWARD_SCHEMA: Final = (
    f"backward(Tensor grad_out, Tensor? grad_lse, Tensor out, Tensor lse, {COMMON_SCHEMA}, "
    f"bool[] captured_grad, {DROPOUT_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor[])"
)


def dispatched(call: AttentionCall, use: str = "") -> AttentionResult:
    """Compute the outputs by the op, through torch's dispatcher.

    Args:
        call: the call.
        use: the implementation that is demanded; empty: none.
    """
    found = OPERATORS["forward"](
        *flattened(call), call.lse, call.max_scores, call.grad, use, *dropout_arguments(call)
    )
    return AttentionResult(
        found[0], found[1] if call.lse else None, found[2] if call.max_scores else None
    )


def _forward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    common, (lse, max_scores, grad, use, *dropout) = list(args[:COMMON]), args[COMMON:]
    if not (grad or use or dropout):
        with_lasting_text(common)
    call = rebuilt(common, dropout, lse=lse, max_scores=max_scores, grad=grad)
    result = outputs(call, use)
    return op_outputs(call.query, result.out, result.lse, result.max_scores)


def _forward_fake(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, value = args[0], args[2]
    lse, max_scores, grad = args[COMMON : COMMON + 3]
    rows = query.shape[:3]
    dtype = lse_dtype(query)
    return (
        empty_in_order((*rows, value.shape[3]), query),
        query.new_empty(rows if lse or grad else (0,), dtype=dtype),
        query.new_empty(rows if max_scores else (0,), dtype=dtype),
    )


def _backward(
    grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, lse: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    common, (captured_grad, *dropout) = rest[:COMMON], rest[COMMON:]
    call = rebuilt(
        common, dropout, lse=True, max_scores=False, grad=True, captured_grad=captured_grad
    )
    grads = gradients(call, out, lse, grad_out, grad_lse)
    captured = [gradient for gradient in grads.captured if gradient is not None]
    return grads.query, grads.key, grads.value, captured


def _backward_fake(
    grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, lse: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    query, key, value, score_captured = rest[:4]
    return (
        query.new_empty(query.shape),
        key.new_empty(key.shape),
        value.new_empty(value.shape),
        [
            tensor.new_empty(tensor.shape)
            for tensor, wanted in zip(score_captured or (), rest[COMMON], strict=True)
            if wanted
        ],
    )


_isolated_forward: Final = isolated(_forward)


def _forward_kernel(*args: Any) -> Any:
    # The fast path uses neither autograd nor vmap.
    found = try_op(args)
    return _isolated_forward(*args) if found is None else found


OPERATORS.define(
    _FORWARD_SCHEMA,
    _forward_kernel,
    _forward_fake,
    transformed=_functions.forward,
)
OPERATORS.define(
    _BACKWARD_SCHEMA, isolated(_backward), _backward_fake, transformed=_functions.backward
)
