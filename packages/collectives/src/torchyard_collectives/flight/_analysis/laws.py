"""What the ranks of one collective have to agree on, op by op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from torchyard_collectives.flight._history import Record, TensorSpec

__all__ = ["Aspect", "Difference", "call_of", "find_difference", "find_p2p_difference"]

_Shapes = tuple[tuple[int, ...], ...]
_Calls = Mapping[int, Record]


class Aspect(StrEnum):
    """What ranks disagree on."""

    OP = "op"
    DTYPE = "dtype"
    SHAPE = "shape"
    ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Difference:
    """Ranks of one collective that disagree: what each of them said, by global rank."""

    aspect: Aspect
    values: Mapping[int, str]


def find_difference(calls: _Calls, ranks: tuple[int, ...]) -> Difference | None:
    """Return what some ranks' calls of one collective disagree on, the gravest first, or None.

    Args:
        calls: by global rank; the ranks that are known, not necessarily all.
        ranks: the group's ranks in their order.
    """
    if len(calls) < 2:
        return None
    ops = {rank: call.op for rank, call in calls.items()}
    if _differ(ops):
        return Difference(Aspect.OP, ops)
    dtypes = {rank: _words(spec.dtype for spec in _tensors(call)) for rank, call in calls.items()}
    # Lists of tensors may differ in length where their law allows it.
    kinds = {rank: _words(sorted({s.dtype for s in _tensors(c)})) for rank, c in calls.items()}
    if _differ(kinds):
        return Difference(Aspect.DTYPE, dtypes)
    # An argument that one rank's recorder could not see is no difference.
    shared = set.intersection(*({name for name, _ in call.arguments} for call in calls.values()))
    shared.discard("splits")
    arguments = {
        rank: _words(f"{name}={value}" for name, value in call.arguments if name in shared)
        for rank, call in calls.items()
    }
    if _differ(arguments):
        return Difference(Aspect.ARGUMENTS, arguments)
    op = next(iter(ops.values()))
    broken = _LAWS.get(op, _same_inputs)(calls, ranks)
    if broken:
        return Difference(Aspect.SHAPE, broken)
    return None


def find_p2p_difference(send: Record, recv: Record, source: int, target: int) -> Difference | None:
    """Return what a send and the receive that takes it disagree on, or None."""
    sent, taken = send.inputs, recv.outputs
    if not sent or not taken:
        return None
    if [spec.dtype for spec in sent] != [spec.dtype for spec in taken]:
        words = {source: _words(s.dtype for s in sent), target: _words(s.dtype for s in taken)}
        return Difference(Aspect.DTYPE, words)
    if [spec.elements for spec in sent] != [spec.elements for spec in taken]:
        return Difference(Aspect.SHAPE, {source: _words(sent), target: _words(taken)})
    return None


def call_of(record: Record) -> tuple[object, ...]:
    """Return what makes two calls of different ranks the same step of a program."""
    root = dict(record.arguments).get("root")
    return record.op, record.inputs, root


def _tensors(call: Record) -> tuple[TensorSpec, ...]:
    return call.inputs or call.outputs


def _words(items: object) -> str:
    assert hasattr(items, "__iter__")
    return ", ".join(map(str, items)) or "nothing"


def _differ(values: Mapping[int, object]) -> bool:
    return len(set(map(str, values.values()))) > 1


def _same(values: Mapping[int, tuple[TensorSpec, ...]]) -> dict[int, str]:
    shapes = {rank: _words(specs) for rank, specs in values.items()}
    return shapes if _differ(shapes) else {}


def _same_inputs(calls: _Calls, ranks: tuple[int, ...]) -> dict[int, str]:
    return _same({rank: call.inputs for rank, call in calls.items()})


def _same_outputs(calls: _Calls, ranks: tuple[int, ...]) -> dict[int, str]:
    return _same({rank: call.outputs for rank, call in calls.items()})


def _nothing(calls: _Calls, ranks: tuple[int, ...]) -> dict[int, str]:
    return {}


def _elements(specs: tuple[TensorSpec, ...]) -> list[int]:
    return [spec.elements for spec in specs]


def _gathered(calls: _Calls, ranks: tuple[int, ...]) -> dict[int, str]:
    """Uneven inputs are right where every rank has room for each of them."""
    given = {rank: call.inputs for rank, call in calls.items()}
    if not _same(given):
        return {}
    for call in calls.values():
        if len(call.outputs) != len(ranks):
            return _same(given)
        for position, rank in enumerate(ranks):
            if rank in calls and _elements(calls[rank].inputs) != [call.outputs[position].elements]:
                return _same(given)
    return {}


def _scattered(calls: _Calls, ranks: tuple[int, ...]) -> dict[int, str]:
    """Uneven outputs are right where every rank brings what each of them takes."""
    taken = {rank: call.outputs for rank, call in calls.items()}
    broken = _same_inputs(calls, ranks)
    if broken or not _same(taken):
        return broken
    for call in calls.values():
        if len(call.inputs) != len(ranks):
            return _same(taken)
        for position, rank in enumerate(ranks):
            if rank in calls and _elements(calls[rank].outputs) != [call.inputs[position].elements]:
                return _same(taken)
    return {}


def _exchanged(calls: _Calls, ranks: tuple[int, ...]) -> dict[int, str]:
    """What rank i gives to rank j is what j takes from i."""
    given = {rank: _splits(call, calls, ranks, taken=False) for rank, call in calls.items()}
    taken = {rank: _splits(call, calls, ranks, taken=True) for rank, call in calls.items()}
    for i, source in enumerate(ranks):
        for j, target in enumerate(ranks):
            if source not in calls or target not in calls:
                continue
            one, other = given[source], taken[target]
            if one and other and one[j] != other[i]:
                return {
                    rank: f"gives {given[rank] or '?'} elements, takes {taken[rank] or '?'}"
                    for rank in calls
                }
    return {}


def _splits(call: Record, calls: _Calls, ranks: tuple[int, ...], *, taken: bool) -> list[int]:
    """Return elements per rank; empty where they cannot be known."""
    specs = call.outputs if taken else call.inputs
    if len(specs) == len(ranks) and len(ranks) > 1:
        return _elements(specs)
    if len(specs) != 1:
        return []
    rows = dict(call.arguments).get("splits", "").split("/")
    words = rows[1 if taken else 0].split() if len(rows) == 2 else []
    spec = specs[0]
    if not words:
        return [spec.elements // len(ranks)] * len(ranks)
    length = spec.shape[0] if spec.shape else 1
    row = spec.elements // length if length else 0
    return [int(word) * row for word in words] if len(words) == len(ranks) else []


_LAWS: Final[Mapping[str, Callable[[_Calls, tuple[int, ...]], dict[int, str]]]] = {
    "all_gather": _gathered,
    "all_to_all": _exchanged,
    "all_to_all_single": _exchanged,
    "barrier": _nothing,
    "monitored_barrier": _nothing,
    "reduce_scatter": _scattered,
    "scatter": _same_outputs,
}
