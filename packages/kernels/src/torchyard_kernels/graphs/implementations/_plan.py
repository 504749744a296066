"""A recording as a plan: which operators a replay runs, and where each leaves its results.

An operator that can write into memory that is given to it, does: into memory that is planned once,
and used again when nobody reads it any more. Views of such memory, and constants, are there before
the first replay, and cost nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.graphs._record import storage_of, tensors_in, written
from torchyard_kernels.graphs.contract import GraphSource, Step

__all__ = ["Kind", "Placed", "Plan", "plan"]

_ALIGNMENT: Final = 64


class Kind(Enum):
    """What a replay does for a step: nothing, its call, or a call that writes into memory."""

    READY = "ready"
    CALL = "call"
    INTO = "into"


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A step of the plan.

    Attributes:
        kind: what is done.
        step: the recorded step.
        op: what is called: of INTO, the overload that writes.
    """

    kind: Kind
    step: Step
    op: Any


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a replay runs.

    Attributes:
        steps: in order, without those that are ready.
        outputs: the function's, as recorded.
        held_bytes: planned memory. made_bytes: what one run of the function asks for.
        fixed: the tensor that stands for a recorded one, by id, of memory that stays.
    """

    steps: tuple[Placed, ...]
    outputs: tuple[Tensor, ...]
    held_bytes: int
    made_bytes: int
    fixed: dict[int, Tensor]


def plan(source: GraphSource) -> Plan:
    """Make a plan of a recording."""
    kinds = [_kind(step) for step in source.steps]
    changed = {
        storage_of(tensor)
        for step in source.steps
        for tensor in written(step.op, step.args, step.kwargs)
    }
    made = _made(source.steps)
    for at, step in enumerate(source.steps):
        if _is_constant(step, made[at], changed):
            kinds[at] = (Kind.READY, step.op)
    loose = {
        storage
        for at, storages in enumerate(made)
        if kinds[at][0] is Kind.CALL
        for storage in storages
    }
    for at, step in enumerate(source.steps):
        if kinds[at][0] is Kind.CALL and not made[at] and not _writes(step):
            # A view: of memory that stays, it stays too.
            given = tensors_in((step.args, step.kwargs))
            if not any(storage_of(t) in loose for t in given) and not any(
                t.is_conj() or t.is_neg() for t in tensors_in(step.result)
            ):
                kinds[at] = (Kind.READY, step.op)
    fixed, held = _placed(source, kinds, made, loose)
    steps = tuple(
        Placed(kind, step, op)
        for step, (kind, op) in zip(source.steps, kinds, strict=True)
        if kind is not Kind.READY
    )
    return Plan(steps, source.outputs, held, _bytes(source.steps, made), fixed)


def _kind(step: Step) -> tuple[Kind, Any]:
    op = step.op
    if _writes(step) or not tensors_in(step.result):
        return Kind.CALL, op
    plain = [(a.name, str(a.type)) for a in op._schema.arguments]
    results = step.result if isinstance(step.result, tuple) else (step.result,)
    if not all(isinstance(result, Tensor) and _is_dense(result) for result in results):
        return Kind.CALL, op
    packet = op.overloadpacket
    for name in packet.overloads():
        found = getattr(packet, name)
        outs = [a for a in found._schema.arguments if a.is_out]
        rest = [(a.name, str(a.type)) for a in found._schema.arguments if not a.is_out]
        if (
            len(outs) == len(results)
            and rest == plain
            # One that is generated computes into memory of its own and copies.
            and torch._C._dispatch_has_kernel_for_dispatch_key(found.name(), "CPU")
        ):
            return Kind.INTO, found
    return Kind.CALL, op


def _is_dense(tensor: Tensor) -> bool:
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return whole and tensor.storage_offset() == 0 and not (tensor.is_conj() or tensor.is_neg())


def _writes(step: Step) -> bool:
    return bool(written(step.op, step.args, step.kwargs))


def _made(steps: Iterable[Step]) -> list[set[int]]:
    """Return, of each step, the memory that it is the first to use."""
    known: set[int] = set()
    made = []
    for step in steps:
        given = {storage_of(tensor) for tensor in tensors_in((step.args, step.kwargs))}
        results = {storage_of(tensor) for tensor in tensors_in(step.result)}
        made.append(results - given - known)
        known |= given | results
    return made


def _is_constant(step: Step, made: set[int], changed: set[int]) -> bool:
    return (
        bool(made)
        and not tensors_in((step.args, step.kwargs))
        and torch.Tag.nondeterministic_seeded not in step.op.tags
        and not made & changed
    )


def _bytes(steps: tuple[Step, ...], made: list[set[int]]) -> int:
    total = 0
    for step, storages in zip(steps, made, strict=True):
        sizes = {storage_of(t): t.untyped_storage().nbytes() for t in tensors_in(step.result)}
        total += sum(sizes[storage] for storage in storages)
    return total


def _placed(
    source: GraphSource, kinds: list[tuple[Kind, Any]], made: list[set[int]], loose: set[int]
) -> tuple[dict[int, Tensor], int]:
    """Place what is written into planned memory; return what stands for each recorded tensor."""
    last: dict[int, int] = {}
    for at, step in enumerate(source.steps):
        for tensor in tensors_in((step.args, step.kwargs, step.result)):
            last[storage_of(tensor)] = at
    for tensor in source.outputs:
        last[storage_of(tensor)] = len(source.steps)
    places: dict[int, Tensor] = {}
    free: list[Tensor] = []
    held = 0
    fixed: dict[int, Tensor] = {}
    for at, step in enumerate(source.steps):
        if kinds[at][0] is Kind.INTO:
            for tensor in tensors_in(step.result):
                storage, size = storage_of(tensor), tensor.untyped_storage().nbytes()
                kept = last[storage] == len(source.steps)
                block = None if kept else _taken(free, size)
                if block is None:
                    rounded = -(-size // _ALIGNMENT) * _ALIGNMENT
                    block = torch.empty(rounded, dtype=torch.uint8)
                    held += rounded
                places[storage] = block
        for tensor in tensors_in((step.args, step.kwargs, step.result)):
            storage = storage_of(tensor)
            if storage not in loose and id(tensor) not in fixed:
                fixed[id(tensor)] = _standing_for(tensor, places.get(storage))
        # What this step reads may not be written by it.
        ended = {storage for storage in places if last[storage] == at}
        free += [places[storage] for storage in sorted(ended)]
        for storage in ended:
            # Views of it that were recorded keep standing for it.
            places.pop(storage)
    for tensor in source.outputs:
        storage = storage_of(tensor)
        if storage not in loose and id(tensor) not in fixed:
            fixed[id(tensor)] = _standing_for(tensor, places.get(storage))
    return fixed, held


def _taken(free: list[Tensor], size: int) -> Tensor | None:
    """Take the smallest block that holds a size and is not twice as large."""
    fitting = [block for block in free if size <= block.numel() <= 2 * size + _ALIGNMENT]
    if not fitting:
        return None
    best = min(fitting, key=lambda block: block.numel())
    for at, block in enumerate(free):
        if block is best:
            del free[at]
            break
    return best


def _standing_for(tensor: Tensor, block: Tensor | None) -> Tensor:
    if block is None:
        return tensor.detach()
    made = torch.empty(0, dtype=tensor.dtype)
    return made.set_(
        block.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )
