"""``Pending``: a collective that has started; its backward starts and waits likewise.

A collective is cut in two ops. ``start`` turns x into a ticket, a scalar that stands for what is
under way, and ``finish`` turns the ticket into the result. The transpose of ``finish`` starts the
transposed collective and that of ``start`` finishes it, so what ran between the two in forward has
its backward run between the two in backward.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_collectives import _simulation
from torchyard_collectives._errors import TransformError
from torchyard_collectives._ops.all_gather import ALL_GATHER, REDUCE_SCATTER, SHARD
from torchyard_collectives._ops.all_reduce import ALL_REDUCE, VARY
from torchyard_collectives._ops.all_to_all import ALL_TO_ALL
from torchyard_collectives._ops.operation import (
    Operation,
    Shaped,
    Steps,
    completed,
    define,
)

__all__ = ["Pending", "start"]

# Number -> what has been begun, or done where nothing is waited for.
_numbers: Final = itertools.count(1)
_under_way: Final[dict[int, Tensor | tuple[Any, Steps]]] = {}


class Pending:
    """The result of a collective that is under way.

    The values that it is computed from must not be changed in place before ``wait``.
    """

    def __init__(self, finish: Callable[[], Tensor]) -> None:
        self._finish = finish
        self._result: Tensor | None = None

    def wait(self) -> Tensor:
        """Return the result, once it is there."""
        if self._result is None:
            self._result = self._finish()
        return self._result

    def then(self, function: Callable[[Tensor], Tensor]) -> Pending:
        """Return a Pending of a function of the result."""
        arguments.function("Pending.then", "function", function)
        return Pending(lambda: function(self.wait()))


def start(op: Operation, x: Tensor, *args: Any) -> Pending:
    """Begin an op; its result is waited for later."""
    if not torch.compiler.is_compiling() and _simulation.current() is not None:
        result = op(x, *args)
        return Pending(lambda: result)
    shape = list(op.shape(x.shape, args))
    ticket = _STARTS[op.name](x, *args)
    return Pending(lambda: _FINISHES[op.name](ticket, shape, x.dtype, x.device, *args))


def _begin(op: Operation, x: Tensor, args: Any) -> Tensor:
    number = next(_numbers)
    computed = op.compute(x, args)
    if isinstance(computed, Tensor):
        _under_way[number] = computed
    else:
        try:
            _under_way[number] = (next(computed), computed)
        except StopIteration as end:
            _under_way[number] = end.value
    # On the CPU and in float64, so that reading the number waits for no device and is exact.
    return torch.tensor(float(number), dtype=torch.float64, device="cpu")


def _end(ticket: Tensor, args: Any) -> Tensor:
    begun = _under_way.pop(int(ticket.item()), None)
    if begun is None:
        raise RuntimeError(
            "wait: what was begun is not there any more; each Pending is finished by one backward, "
            "so its ticket must not be copied or added"
        )
    if isinstance(begun, Tensor):
        return begun
    work, steps = begun
    if work is not None:
        work.wait()
    return completed(steps)


def _no_vmap(args: Any) -> Any:
    raise TransformError(
        "async_op: expected a call outside of torch.func.vmap, or one without async_op inside of it"
    )


def _not_met(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    raise AssertionError("a simulated op is not begun")


def _cut(op: Operation) -> tuple[Operation, Operation]:
    """Return the two ops that begin and end an op."""
    assert callable(op.derivative)
    transposed = op.derivative

    def of_start(x: Shaped, args: Any) -> tuple[Operation, Any]:
        undo, undo_args = transposed(x, args)
        return _FINISHES[undo.name], (list(x.shape), x.dtype, x.device, *undo_args)

    def of_finish(ticket: Shaped, args: Any) -> tuple[Operation, Any]:
        _, _, _, *own = args
        # The input's shape is what the transposed op's arguments do not hold already.
        undo, undo_args = transposed(Shaped(torch.Size(), *args[1:3]), tuple(own))
        return _STARTS[undo.name], undo_args

    return (
        define(
            replace(
                op,
                name=f"start_{op.name}",
                shape=lambda shape, args: [],
                compute=lambda x, args: _begin(op, x, args),
                derivative=of_start,
                batched=_no_vmap,
                dense=_not_met,
                fake=lambda x, args: torch.empty((), dtype=torch.float64, device="cpu"),
            )
        ),
        define(
            Operation(
                name=f"finish_{op.name}",
                fields=f"SymInt[] shape, ScalarType dtype, Device device, {op.fields}",
                shape=lambda shape, args: args[0],
                compute=_end,
                derivative=of_finish,
                batched=_no_vmap,
                dense=_not_met,
                collective=False,
                fake=lambda ticket, args: torch.empty(args[0], dtype=args[1], device=args[2]),
            )
        ),
    )


_PAIRS: Final = {
    op.name: _cut(op) for op in (ALL_REDUCE, VARY, ALL_GATHER, REDUCE_SCATTER, SHARD, ALL_TO_ALL)
}
_STARTS: Final = {name: pair[0] for name, pair in _PAIRS.items()}
_FINISHES: Final = {name: pair[1] for name, pair in _PAIRS.items()}
