"""Gradients of attention from its results, for those who compute it in parts.

Attention over some of the keys has the gradients of the whole where it is given the whole's out and
lse: a weight is ``exp(score - lse)``, whichever part of the keys its score belongs to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from torchyard import arguments as checks
from torchyard_attention._api import ScoreModFunction, checked_call
from torchyard_attention._block_mask import BlockMask
from torchyard_attention._mods._trace import lse_dtype
from torchyard_attention._ops._arguments import flattened
from torchyard_attention._ops._operators import OPERATORS
from torchyard_attention._ops._transforms._plan import captured_of
from torchyard_attention._ops._transforms._refused import constant
from torchyard_attention._validation import FLOATS


class AttentionPartGradients(NamedTuple):
    """Gradients of attention over some of the keys.

    Attributes:
        query, key, value: in their inputs' shapes and dtypes.
        captured: each tensor that the score_mod captures and that requires a gradient, with its
            gradient.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    captured: tuple[tuple[Tensor, Tensor], ...]


def captured_tensors(score_mod: ScoreModFunction | None, query: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors that a score_mod captures and that require a gradient.

    Args:
        score_mod: as flex_attention takes it; None captures nothing.
        query: a query that it would be used with; only dtype and device are read.
    """
    if score_mod is None:
        return ()
    of = "captured_tensors"
    checks.function(of, "score_mod", score_mod)
    checks.tensor(of, "query", query, dtypes=FLOATS)
    empty = query.new_empty((1, 1, 0, 1))
    call = checked_call(empty, empty, empty, score_mod)
    return tuple(tensor for tensor in captured_of(call) if tensor.requires_grad)


def attention_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None = None,
    *,
    score_mod: ScoreModFunction | None = None,
    block_mask: BlockMask | Any | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionPartGradients:
    """Return the gradients of attention over ``key`` and ``value``, a part or all of the keys.

    The sum over parts that hold each key once is the gradient of the whole. Differentiating the
    result, and torch.func's transforms, raise TransformError.
    Source: FlashAttention-2 (arXiv 2307.08691), section 3.1.2, with lse for the logarithm.

    Args:
        query, key, value, score_mod, block_mask, scale, enable_gqa: as flex_attention takes them;
            the part's.
        out: [B, Hq, Sq, V]: the whole's output.
        lse: [B, Hq, Sq]: the whole's log-sum-exp.
        grad_out, grad_lse: gradients of the whole's output and log-sum-exp; None: of neither.

    Raises:
        ValueError, TypeError: an argument does not fit; names it.
        torchyard.UnsupportedError: no implementation supports the call.
    """
    of = "attention_gradients"
    given = {"out": out, "lse": lse, "grad_out": grad_out, "grad_lse": grad_lse}
    for name, tensor in given.items():
        if name != "grad_lse" or tensor is not None:
            checks.tensor(of, name, tensor, dtypes=FLOATS)
    call = checked_call(query, key, value, score_mod, block_mask, scale, enable_gqa)
    rows = (*query.shape[:3], value.shape[3])
    for name, tensor, shape in (
        ("out", out, rows),
        ("grad_out", grad_out, rows),
        ("lse", lse, rows[:3]),
        ("grad_lse", lse if grad_lse is None else grad_lse, rows[:3]),
    ):
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{of}: {name}: expected shape {list(shape)}, got {list(tensor.shape)}"
            )
    for name, tensor, dtype in (
        ("out", out, call.query.dtype),
        ("grad_out", grad_out, call.query.dtype),
        ("lse", lse, lse_dtype(call.query)),
    ):
        if tensor.dtype != dtype or tensor.device != call.query.device:
            raise TypeError(
                f"{of}: {name}: expected {dtype} on {call.query.device}, got {tensor.dtype} "
                f"on {tensor.device}"
            )
    marked = [tensor for tensor in captured_of(call) if tensor.requires_grad]
    of_query, of_key, of_value, *of_captured = _PART(
        _compute,
        grad_out,
        grad_lse,
        out,
        lse,
        *flattened(call),
        [tensor.requires_grad for tensor in captured_of(call)],
    )
    captured = tuple(zip(marked, of_captured, strict=True))
    return AttentionPartGradients(of_query, of_key, of_value, captured)


def _compute(
    grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, lse: Tensor, *common: Any
) -> tuple[Tensor, ...]:
    *grads, captured = OPERATORS["backward"](grad_out, grad_lse, out, lse, *common)
    return *grads, *captured


_PART = constant(
    "attention_gradients",
    derivative=(
        "gradients of a part of the keys cannot be differentiated again; differentiate "
        "flex_attention over all of the keys twice instead"
    ),
    mapped="expected tensors that are not mapped over; put them into the batch dimension",
)
