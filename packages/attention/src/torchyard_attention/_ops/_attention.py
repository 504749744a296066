"""The ops that torch sees: ``torch.ops.torchyard_attention.*``.

The choice of implementation is made inside of the op, from sizes and dtypes only, so eager calls,
compiled graphs, exported programs and fake tensors take the same decision.
"""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

from torchyard.dispatch import is_plain_call
from torchyard_attention._ops._arguments import COMMON, Arguments
from torchyard_attention._ops._autograd import recorded
from torchyard_attention._ops._computation import gradients, outputs
from torchyard_attention._ops._fast_path import op_outputs, try_op, with_lasting_text
from torchyard_attention._ops._layout import empty_in_order
from torchyard_attention._ops._operators import OPERATORS, isolated
from torchyard_attention._ops._request import lse_dtype
from torchyard_attention._ops._transforms import _functions
from torchyard_attention.contract import AttentionResult

# mask is None, or the six tensors of MaskBlocks in their order. A list with nothing in it is None,
# because an AOTInductor package hands an op no list for an empty one. The backward returns
# gradients of those captured tensors alone that captured_grad marks.
_COMMON: Final = (
    "Tensor query, Tensor key, Tensor value, Tensor[]? score_captured, str score_text, "
    "Tensor[]? mask, int[] block_size, bool causal, Tensor[]? mask_captured, str mask_text, "
    "int[]? mask_versions, float scale, str options"
)
# Last and with defaults, so that programs that were exported without it stay what they are.
_DROPOUT: Final = "float dropout_p=0.0, Tensor? dropout_seed=None"
_FORWARD_SCHEMA: Final = (
    f"forward({_COMMON}, bool lse, bool max_scores, bool grad, str use, {_DROPOUT}) "
    "-> (Tensor, Tensor, Tensor)"
)
_BACKWARD_SCHEMA: Final = (
    f"backward(Tensor grad_out, Tensor? grad_lse, Tensor out, Tensor lse, {_COMMON}, "
    f"bool[] captured_grad, {_DROPOUT}) -> (Tensor, Tensor, Tensor, Tensor[])"
)


def forward(
    arguments: Arguments, *, lse: bool, max_scores: bool, grad: bool, use: str | None
) -> AttentionResult:
    """Compute the outputs, through torch's dispatcher where anything else takes part in the call.

    Args:
        arguments: the call.
        lse, max_scores: whether they are outputs.
        grad: whether gradients will be asked for.
        use: the implementation that is demanded, or None.
    """
    if is_plain_call((*arguments[:3], *arguments.score_captured)):
        attend = recorded if grad else outputs
        return attend(arguments, lse, max_scores, use)
    found = OPERATORS["forward"](
        *arguments.given(), lse, max_scores, grad, use or "", *arguments.dropout()
    )
    return AttentionResult(found[0], found[1] if lse else None, found[2] if max_scores else None)


def _forward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    common, (lse, max_scores, grad, use, *dropout) = list(args[:COMMON]), args[COMMON:]
    if not (grad or use or dropout):
        with_lasting_text(common)
    arguments = Arguments.of(common, dropout)
    result = outputs(arguments, lse, max_scores, use or None, grad=grad)
    return op_outputs(arguments.query, result.out, result.lse, result.max_scores)


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
    grads = gradients(Arguments.of(common, dropout), grad_out, grad_lse, out, lse, captured_grad)
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
