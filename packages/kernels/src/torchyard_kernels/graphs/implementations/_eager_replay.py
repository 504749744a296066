"""A plan as calls of its operators, one after the other: for what the interpreter cannot take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.graphs.implementations._plan import Kind, Placed, Plan

__all__ = ["called"]


@dataclass(frozen=True, slots=True)
class _Moving:
    """Stands for a result that a replay makes anew: its number among them."""

    at: int


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """One call.

    Attributes:
        op, args, kwargs: the call; results that a replay makes stand as _Moving.
        filled: whether there are any of those in it.
        results: the number that each result is kept under; None for one that stays where it is.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    filled: bool
    results: tuple[int | None, ...]


def called(plan: Plan) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """Return what runs a plan, and where it leaves the outputs."""
    numbers: dict[int, int] = {}
    calls = [_call(placed, plan.fixed, numbers) for placed in plan.steps]
    outputs = []
    copied: list[tuple[Tensor, int]] = []
    for tensor in plan.outputs:
        kept = plan.fixed.get(id(tensor))
        if kept is None:
            kept = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
            copied.append((kept, numbers[id(tensor)]))
        outputs.append(kept)

    def replay() -> None:
        moving: list[Any] = [None] * len(numbers)
        with torch._C._AutoDispatchBelowAutograd():
            for call in calls:
                if call.filled:
                    args = _filled(call.args, moving)
                    found = call.op(*args, **_filled(call.kwargs, moving))
                else:
                    found = call.op(*call.args, **call.kwargs)
                if call.results:
                    made = found if isinstance(found, list | tuple) else (found,)
                    for number, result in zip(call.results, made, strict=True):
                        if number is not None:
                            moving[number] = result
            for kept, number in copied:
                kept.copy_(moving[number])

    return replay, tuple(outputs)


def _call(placed: Placed, fixed: dict[int, Tensor], numbers: dict[int, int]) -> _Call:
    step, results = placed.step, placed.step.result
    results = list(results) if isinstance(results, list | tuple) else [results]

    def standing_for(item: Any) -> Any:
        if isinstance(item, list | tuple):
            return type(item)(standing_for(part) for part in item)
        if not isinstance(item, Tensor):
            return item
        return fixed[id(item)] if id(item) in fixed else _Moving(numbers[id(item)])

    args = tuple(standing_for(item) for item in step.args)
    kwargs = {name: standing_for(item) for name, item in step.kwargs.items()}
    if placed.kind is Kind.INTO:
        names = [a.name for a in placed.op._schema.arguments if a.is_out]
        kwargs |= {name: fixed[id(t)] for name, t in zip(names, results, strict=True)}
        return _Call(placed.op, args, kwargs, _moves((args, kwargs)), ())
    kept = tuple(
        numbers.setdefault(id(t), len(numbers))
        if isinstance(t, Tensor) and id(t) not in fixed
        else None
        for t in results
    )
    used = kept if any(number is not None for number in kept) else ()
    return _Call(placed.op, args, kwargs, _moves((args, kwargs)), used)


def _moves(item: Any) -> bool:
    if isinstance(item, dict):
        return _moves(tuple(item.values()))
    if isinstance(item, list | tuple):
        return any(_moves(part) for part in item)
    return isinstance(item, _Moving)


def _filled(item: Any, moving: list[Any]) -> Any:
    if isinstance(item, _Moving):
        return moving[item.at]
    if isinstance(item, list | tuple):
        return type(item)(_filled(part, moving) for part in item)
    if isinstance(item, dict):
        return {name: _filled(part, moving) for name, part in item.items()}
    return item
