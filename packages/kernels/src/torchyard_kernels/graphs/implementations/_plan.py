"""A recording as a plan: which operators a replay runs, and where each writes its results.

An operator with an ``out`` overload writes into memory that is planned once, and reused after its
last reader. Views of such memory, and constants, exist before the first replay and take no time in
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import torch
from torch import Tensor

from torchyard.torch_compat import has_cpu_kernel
from torchyard_kernels.graphs._record import storage_of, tensors_in, written
from torchyard_kernels.graphs.contract import GraphSource, Step

__all__ = ["Kind", "Placed", "Plan", "plan"]

_ALIGNMENT: Final = 64


class Kind(Enum):
    """What a replay does for a step: nothing, a call, or a call that writes into planned memory."""

    PRECOMPUTED = "precomputed"
    CALL = "call"
    OUT = "out"


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A step of the plan.

    Attributes:
        kind: what a replay does.
        step: the recorded step.
        op: the operator to call; for OUT, the ``out`` overload.
    """

    kind: Kind
    step: Step
    op: Any


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a replay runs.

    Attributes:
        steps: in order, without precomputed ones.
        outputs: the function's outputs, as recorded.
        planned_bytes: size of the planned memory.
        requested_bytes: what one run of the function allocates.
        fixed: by id of a recorded tensor, the tensor at a fixed place that a replay uses for it.
    """

    steps: tuple[Placed, ...]
    outputs: tuple[Tensor, ...]
    planned_bytes: int
    requested_bytes: int
    fixed: dict[int, Tensor]


def plan(source: GraphSource) -> Plan:
    """Make a plan of a recording."""
    kinds = [_kind(step) for step in source.steps]
    changed = {
        storage_of(tensor)
        for step in source.steps
        for tensor in written(step.op, step.args, step.kwargs)
    }
    allocated = _allocated(source.steps)
    for at, step in enumerate(source.steps):
        if _is_constant(step, allocated[at], changed):
            kinds[at] = (Kind.PRECOMPUTED, step.op)
    temporary = {
        storage
        for at, storages in enumerate(allocated)
        if kinds[at][0] is Kind.CALL
        for storage in storages
    }
    for at, step in enumerate(source.steps):
        if kinds[at][0] is Kind.CALL and not allocated[at] and not _writes(step):
            # A view of memory at a fixed place is at a fixed place too.
            inputs = tensors_in((step.args, step.kwargs))
            if not any(storage_of(t) in temporary for t in inputs) and not any(
                t.is_conj() or t.is_neg() for t in tensors_in(step.result)
            ):
                kinds[at] = (Kind.PRECOMPUTED, step.op)
    fixed, planned_bytes = _placed(source, kinds, allocated, temporary)
    steps = tuple(
        Placed(kind, step, op)
        for step, (kind, op) in zip(source.steps, kinds, strict=True)
        if kind is not Kind.PRECOMPUTED
    )
    return Plan(
        steps, source.outputs, planned_bytes, _requested_bytes(source.steps, allocated), fixed
    )


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
        overload = getattr(packet, name)
        outs = [a for a in overload._schema.arguments if a.is_out]
        rest = [(a.name, str(a.type)) for a in overload._schema.arguments if not a.is_out]
        if (
            len(outs) == len(results)
            and rest == plain
            # A generated overload allocates and copies.
            and has_cpu_kernel(overload.name())
        ):
            return Kind.OUT, overload
    return Kind.CALL, op


def _is_dense(tensor: Tensor) -> bool:
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return whole and tensor.storage_offset() == 0 and not (tensor.is_conj() or tensor.is_neg())


def _writes(step: Step) -> bool:
    return bool(written(step.op, step.args, step.kwargs))


def _allocated(steps: Iterable[Step]) -> list[set[int]]:
    """Return the storages that each step is the first to use."""
    known: set[int] = set()
    allocated = []
    for step in steps:
        inputs = {storage_of(tensor) for tensor in tensors_in((step.args, step.kwargs))}
        results = {storage_of(tensor) for tensor in tensors_in(step.result)}
        allocated.append(results - inputs - known)
        known |= inputs | results
    return allocated


def _is_constant(step: Step, allocated: set[int], changed: set[int]) -> bool:
    return (
        bool(allocated)
        and not tensors_in((step.args, step.kwargs))
        and torch.Tag.nondeterministic_seeded not in step.op.tags
        and not allocated & changed
    )


def _requested_bytes(steps: tuple[Step, ...], allocated: list[set[int]]) -> int:
    total = 0
    for step, storages in zip(steps, allocated, strict=True):
        sizes = {storage_of(t): t.untyped_storage().nbytes() for t in tensors_in(step.result)}
        total += sum(sizes[storage] for storage in storages)
    return total


def _placed(
    source: GraphSource,
    kinds: list[tuple[Kind, Any]],
    allocated: list[set[int]],
    temporary: set[int],
) -> tuple[dict[int, Tensor], int]:
    """Plan the memory of ``out`` results; return the replay's tensor by id of a recorded one.

    Also return the planned bytes.
    """
    last: dict[int, int] = {}
    for at, step in enumerate(source.steps):
        for tensor in tensors_in((step.args, step.kwargs, step.result)):
            last[storage_of(tensor)] = at
    for tensor in source.outputs:
        last[storage_of(tensor)] = len(source.steps)
    blocks: dict[int, Tensor] = {}
    free: list[Tensor] = []
    planned_bytes = 0
    fixed: dict[int, Tensor] = {}
    for at, step in enumerate(source.steps):
        if kinds[at][0] is Kind.OUT:
            for tensor in tensors_in(step.result):
                storage, size = storage_of(tensor), tensor.untyped_storage().nbytes()
                is_output = last[storage] == len(source.steps)
                block = None if is_output else _best_fit(free, size)
                if block is None:
                    rounded = -(-size // _ALIGNMENT) * _ALIGNMENT
                    block = torch.empty(rounded, dtype=torch.uint8)
                    planned_bytes += rounded
                blocks[storage] = block
        for tensor in tensors_in((step.args, step.kwargs, step.result)):
            storage = storage_of(tensor)
            if storage not in temporary and id(tensor) not in fixed:
                fixed[id(tensor)] = _replayed(tensor, blocks.get(storage))
        # Only now: a step must not write to memory that it reads.
        ended = {storage for storage in blocks if last[storage] == at}
        free += [blocks[storage] for storage in sorted(ended)]
        for storage in ended:
            # Recorded views of it keep referring to the block.
            blocks.pop(storage)
    for tensor in source.outputs:
        storage = storage_of(tensor)
        if storage not in temporary and id(tensor) not in fixed:
            fixed[id(tensor)] = _replayed(tensor, blocks.get(storage))
    return fixed, planned_bytes


def _best_fit(free: list[Tensor], size: int) -> Tensor | None:
    """Remove and return the smallest free block that fits and is at most about twice as large."""
    fitting = [block for block in free if size <= block.numel() <= 2 * size + _ALIGNMENT]
    if not fitting:
        return None
    best = min(fitting, key=lambda block: block.numel())
    for at, block in enumerate(free):
        if block is best:
            del free[at]
            break
    return best


def _replayed(tensor: Tensor, block: Tensor | None) -> Tensor:
    if block is None:
        return tensor.detach()
    replayed = torch.empty(0, dtype=tensor.dtype)
    return replayed.set_(
        block.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )
