"""Replay of a plan by calling its operators from Python, for plans that TorchScript cannot run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard.torch_compat import below_autograd
from torchyard_kernels.graphs.implementations._plan import Kind, Placed, Plan

__all__ = ["eager_replay"]


@dataclass(frozen=True, slots=True)
class _Temporary:
    """A result that each replay allocates.

    Attributes:
        index: its index among them.
    """

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """One call.

    Attributes:
        op, args, kwargs: the call; temporary results are :class:`_Temporary`.
        has_temporaries: whether the arguments contain any.
        results: the index of each temporary result; None for a result at a fixed place.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    has_temporaries: bool
    results: tuple[int | None, ...]


def eager_replay(plan: Plan) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """Return a function that runs a plan, and the tensors that hold its outputs after each run."""
    indices: dict[int, int] = {}
    calls = [_call(placed, plan.fixed, indices) for placed in plan.steps]
    outputs = []
    copied: list[tuple[Tensor, int]] = []
    for tensor in plan.outputs:
        output = plan.fixed.get(id(tensor))
        if output is None:
            output = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
            copied.append((output, indices[id(tensor)]))
        outputs.append(output)

    def replay() -> None:
        temporaries: list[Any] = [None] * len(indices)
        with below_autograd():
            for call in calls:
                if call.has_temporaries:
                    args = _filled(call.args, temporaries)
                    result = call.op(*args, **_filled(call.kwargs, temporaries))
                else:
                    result = call.op(*call.args, **call.kwargs)
                if call.results:
                    results = result if isinstance(result, list | tuple) else (result,)
                    for index, tensor in zip(call.results, results, strict=True):
                        if index is not None:
                            temporaries[index] = tensor
            for output, index in copied:
                output.copy_(temporaries[index])

    return replay, tuple(outputs)


def _call(placed: Placed, fixed: dict[int, Tensor], indices: dict[int, int]) -> _Call:
    step, results = placed.step, placed.step.result
    results = list(results) if isinstance(results, list | tuple) else [results]

    def replayed(item: Any) -> Any:
        if isinstance(item, list | tuple):
            return type(item)(replayed(part) for part in item)
        if not isinstance(item, Tensor):
            return item
        return fixed[id(item)] if id(item) in fixed else _Temporary(indices[id(item)])

    args = tuple(replayed(item) for item in step.args)
    kwargs = {name: replayed(item) for name, item in step.kwargs.items()}
    if placed.kind is Kind.OUT:
        names = [a.name for a in placed.op._schema.arguments if a.is_out]
        kwargs |= {name: fixed[id(t)] for name, t in zip(names, results, strict=True)}
        return _Call(placed.op, args, kwargs, _has_temporaries((args, kwargs)), ())
    stored = tuple(
        indices.setdefault(id(t), len(indices))
        if isinstance(t, Tensor) and id(t) not in fixed
        else None
        for t in results
    )
    used = stored if any(index is not None for index in stored) else ()
    return _Call(placed.op, args, kwargs, _has_temporaries((args, kwargs)), used)


def _has_temporaries(item: Any) -> bool:
    if isinstance(item, dict):
        return _has_temporaries(tuple(item.values()))
    if isinstance(item, list | tuple):
        return any(_has_temporaries(part) for part in item)
    return isinstance(item, _Temporary)


def _filled(item: Any, temporaries: list[Any]) -> Any:
    if isinstance(item, _Temporary):
        return temporaries[item.index]
    if isinstance(item, list | tuple):
        return type(item)(_filled(part, temporaries) for part in item)
    if isinstance(item, dict):
        return {name: _filled(part, temporaries) for name, part in item.items()}
    return item
