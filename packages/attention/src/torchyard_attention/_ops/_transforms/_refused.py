"""Ops without derivatives: under a transform they are computed where they are constant, or refused.

Without this, a transform would end in torch's internal errors, or in results whose derivative is
silently missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from torchyard_attention._errors import TransformError
from torchyard_attention._torch_compat import tree_flatten, tree_unflatten

__all__ = ["constant", "refuse"]


def refuse(what: str, transform: str, remedy: str) -> NoReturn:
    """Raise TransformError that names what was called and the transform."""
    raise TransformError(f"{what} under {transform}: {remedy}")


def constant(what: str, *, derivative: str | None, mapped: str) -> Callable[..., Any]:
    """Return how an op without derivatives is computed where it is differentiated or transformed.

    Args:
        what: what users call, for errors.
        derivative: why there is no derivative, and what to do; raised when one is asked for. None
            where results, such as masks, have none by their nature.
        mapped: the same for torch.vmap over one of the op's tensors.
    """

    class Constant(torch.autograd.Function):
        """(op, structure, tensors and the rest) -> the op's results."""

        @staticmethod
        def forward(op: Callable[..., Any], spec: Any, *leaves: Any) -> Any:
            return op(*tree_unflatten(list(leaves), spec))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.set_materialize_grads(False)
            if derivative is None:
                results = (output,) if isinstance(output, Tensor) else output
                ctx.mark_non_differentiable(*results)

        @staticmethod
        def backward(ctx: Any, *_: Any) -> Any:
            if derivative is not None:
                refuse(what, "a gradient", derivative)
            return (None,) * len(ctx.needs_input_grad)

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> Any:
            if derivative is not None:
                refuse(what, "forward-mode differentiation (jvp)", derivative)
            return None

        @staticmethod
        def vmap(info: Any, dims: tuple[Any, ...], *_: Any) -> NoReturn:
            refuse(what, "torch.vmap", mapped)

    def transformed(op: Callable[..., Any], *given: Any) -> Any:
        leaves, spec = tree_flatten(given)
        return Constant.apply(op, spec, *leaves)  # type: ignore[no-untyped-call]

    return transformed
