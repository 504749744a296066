"""The definition of an op, registered with torch's dispatcher.

Eager autograd, create_graph, forward mode, torch.func's transforms, fake tensors and torch.compile
all call an op through the dispatcher, so it is registered there: a kernel, a fake, a rule for vmap,
and one for autograd that covers both modes at every level of nesting. The rules call ops again,
which is what makes derivatives of derivatives right.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torchyard import Operators, differentiable_jvp
from torchyard_collectives import _simulation
from torchyard_collectives._ops.verification import verify
from torchyard_collectives._torch_compat import (
    Modes,
    SingleLevelFunction,
    apply_at_one_level,
    below_autograd,
)

__all__ = [
    "OPERATORS",
    "Derivatives",
    "Operation",
    "Shaped",
    "Steps",
    "completed",
    "define",
]

OPERATORS: Final = Operators("torchyard_collectives", ["torchyard_collectives"])

# Every op's last arguments. The place and size are there, though the group knows them, so that an
# output's shape follows from the arguments alone: caches of compiled code are shared by ranks.
_MEMBERS: Final = "int rank, int size, str group"

Args = tuple[Any, ...]


# Yields what is under way, and returns the output.
Steps = Generator[Any, None, Tensor]


class Shaped(NamedTuple):
    """An input of which only this is needed."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


# Of a linear op: (input, args) to the op that its gradient goes through, with that op's args.
Transposed = Callable[[Shaped, Args], "tuple[Operation, Args]"]


class Derivatives(NamedTuple):
    """Those of an op that is not linear.

    Attributes:
        gradient: (gradient of the output, x, output, args) to that of x.
        tangent: (tangent of x, x, output, args) to that of the output.
    """

    gradient: Callable[[Tensor, Tensor, Tensor, Args], Tensor]
    tangent: Callable[[Tensor, Tensor, Tensor, Args], Tensor]


@dataclass(frozen=True, slots=True)
class Operation:
    """One op of one tensor.

    Attributes:
        name: in the namespace.
        fields: the schema of its arguments between the tensor and the members.
        shape: (input's shape, args) to the output's shape.
        compute: (x, args) to a fresh contiguous output, or to a generator that yields what is to
            be waited for, and returns the output; x is plain.
        derivative: the op that is a linear one's transpose, or both derivatives of another.
        batched: args to those for an x with one more dimension in front.
        dense: every rank's x and args to every rank's output, in plain differentiable torch.
        collective: whether every member takes part, so that calls can be compared.
        local: whether nothing is sent at all.
        fake: (x, args) to an output without values, where that is not of x's dtype and device.
    """

    name: str
    fields: str
    shape: Callable[[Sequence[int], Args], Sequence[int]]
    compute: Callable[[Tensor, Args], Tensor | Steps]
    derivative: Transposed | Derivatives
    batched: Callable[[Args], Args]
    dense: Callable[[list[Tensor], list[Args]], list[Tensor]]
    collective: bool = True
    local: bool = False
    fake: Callable[[Tensor, Args], Tensor] | None = None

    def __call__(self, x: Tensor, *args: Any) -> Tensor:
        """Run the op, or wait for the other simulated ranks."""
        if not torch.compiler.is_compiling():
            seat = _simulation.current()
            if seat is not None:
                return self.dense([x], [args])[0] if self.local else seat.meet(self, x, args)
        result: Tensor = OPERATORS[self.name](x, *args)
        return result

    def together(self, xs: list[Tensor], args: list[Args]) -> list[Tensor]:
        """Return each rank's output, for the simulation."""
        return self.dense(xs, args)


def define(op: Operation) -> Operation:
    """Register an op with torch, and return it."""
    fields = ", ".join(filter(None, ["Tensor x", op.fields.removesuffix(", "), _MEMBERS]))
    OPERATORS.define(
        f"{op.name}({fields}) -> Tensor",
        _kernel(op),
        _fake(op),
        autograd=_autograd(op),
        vmap=_vmap(op),
        # The other ranks wait for this one, whether or not it uses the result.
        has_side_effect=not op.local,
    )
    return op


def completed(computed: Tensor | Steps) -> Tensor:
    """Return what is computed, waiting for what it waits for."""
    if isinstance(computed, Tensor):
        return computed
    while True:
        try:
            under_way = next(computed)
        except StopIteration as end:
            result: Tensor = end.value
            return result
        if under_way is not None:
            under_way.wait()


def _kernel(op: Operation) -> Callable[..., Tensor]:
    def run(x: Tensor, *args: Any) -> Tensor:
        if op.collective and not op.local:
            verify(op.name, x, args)
        with torch.no_grad():
            return completed(op.compute(x.detach(), args))

    return run


def _fake(op: Operation) -> Callable[..., Tensor]:
    def run(x: Tensor, *args: Any) -> Tensor:
        return x.new_empty(op.shape(x.shape, args)) if op.fake is None else op.fake(x, args)

    return run


def _vmap(op: Operation) -> Callable[..., tuple[Tensor, int]]:
    def run(info: Any, in_dims: Sequence[int | None], x: Tensor, *args: Any) -> tuple[Tensor, int]:
        return op(x.movedim(in_dims[0] or 0, 0), *op.batched(args)), 0

    return run


def _autograd(op: Operation) -> Callable[..., Tensor]:
    function = _function(op)

    def run(x: Tensor, *args: Any) -> Tensor:
        result: Tensor = apply_at_one_level(function, x, *args)
        return result

    return run


def _function(op: Operation) -> Any:
    class Differentiable(SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, modes: Modes | None, x: Tensor, *args: Any) -> Tensor:
            ctx.args = args
            with below_autograd(modes):
                y: Tensor = OPERATORS[op.name](x, *args)
            if isinstance(op.derivative, Derivatives):
                ctx.save_for_backward(x, y)
                ctx.save_for_forward(x, y)
            else:
                ctx.x = Shaped(x.shape, x.dtype, x.device)
            return y

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            if isinstance(op.derivative, Derivatives):
                x, y = ctx.saved_tensors
                gradient = op.derivative.gradient(grads[0], x, y, ctx.args)
            else:
                transposed, args = op.derivative(ctx.x, ctx.args)
                gradient = transposed(grads[0], *args)
            return None, gradient, *(None for _ in ctx.args)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Tensor:
            with differentiable_jvp(ctx.saved_tensors) as saved:
                if isinstance(op.derivative, Derivatives):
                    x, y = saved
                    return op.derivative.tangent(tangents[1], x, y, ctx.args)
                return op(tangents[1], *ctx.args)

    Differentiable.__name__ = Differentiable.__qualname__ = op.name
    return Differentiable
