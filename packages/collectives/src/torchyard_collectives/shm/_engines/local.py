"""The engine of a group whose ranks are all on this host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_collectives._torch_compat import Store
from torchyard_collectives.contract import DTYPES, Code, Failure, Kind, SharedMemory
from torchyard_collectives.shm._errors import (
    SharedMemoryError,
    failure_error,
    note_of,
    noted_error,
)
from torchyard_collectives.shm._rendezvous.neighbours import Member, share_segment

__all__ = ["LocalEngine"]

_DTYPE_NUMBERS: Final = {getattr(torch, name): number for number, name in enumerate(DTYPES)}


class LocalEngine:
    """Collectives through one segment of memory.

    Args:
        store: the rendezvous of its ranks; nobody else uses its keys.
        memory: the implementation of ``shared_memory/1``.
        members: its ranks, in order.
        rank: this one's rank among the group's, as a member states it.
        name: for messages.
        timeout: for the meeting.
    """

    def __init__(
        self,
        store: Store,
        memory: SharedMemory,
        members: tuple[Member, ...],
        rank: int,
        name: str,
        timeout: timedelta,
    ) -> None:
        self._memory = memory
        self._members = members
        self._name = name
        self._ranks = len(members)
        self._position = next(i for i, member in enumerate(members) if member.rank == rank)
        self._group = share_segment(store, memory, members, rank, timeout)
        milliseconds = int(timeout.total_seconds() * 1000)
        try:
            self._check("making the group", memory.meet(self._group, milliseconds), milliseconds)
        finally:
            if self._position == 0:
                os.close(int(store.get(f"segment/{rank}")))
        self._nothing = (0, 0) * self._ranks

    def _check(self, what: str, failure: Failure | None, milliseconds: int) -> None:
        if failure is not None:
            if Code.LEFT in (failure[0], failure[3]):
                self._raise_note(what, failure)
            raise failure_error(
                failure,
                f"{what} in group {self._name!r}",
                [(member.global_rank, member.pid) for member in self._members],
                milliseconds / 1000,
            )

    def _raise_note(self, what: str, failure: Failure) -> None:
        """Raise what a rank said when it left, if it did."""
        for rank, member in enumerate(self._members):
            if failure[1] >> rank & 1 and (note := self._memory.note(self._group, rank)):
                raise noted_error(f"{what}, as rank {member.global_rank} reported", note)

    def _number(self, what: str, tensor: Tensor, operation: int) -> int:
        number = _DTYPE_NUMBERS.get(tensor.dtype)
        if number is None or not self._memory.reduces(number, operation):
            raise TypeError(f"{what}: operation {operation} of {tensor.dtype} is not defined")
        return number

    def all_reduce(self, tensor: Tensor, operation: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        dtype = _DTYPE_NUMBERS.get(tensor.dtype, -1)
        data = tensor.data_ptr()
        try:
            failure = self._memory.all_reduce(
                self._group, data, data, tensor.numel(), dtype, operation, milliseconds
            )
        except ValueError:
            self._number("all_reduce", tensor, operation)
            raise
        if failure is not None:
            self._check("all_reduce", failure, milliseconds)

    def reduce(self, tensor: Tensor, operation: int, root: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        dtype = self._number("reduce", tensor, operation)
        data = tensor.data_ptr()
        failure = self._memory.reduce(
            self._group, data, data, tensor.numel(), dtype, operation, root, milliseconds
        )
        self._check("reduce", failure, milliseconds)

    def reduce_scatter(
        self, out: Tensor, sources: Sequence[Tensor], operation: int, milliseconds: int
    ) -> None:
        """See :class:`Engine`."""
        dtype = self._number("reduce_scatter", out, operation)
        own = sources[self._position].numel()
        if own != out.numel():
            raise ValueError(
                f"reduce_scatter: expected an output of {own} elements, got {out.numel()}"
            )
        failure = self._memory.reduce_scatter(
            self._group,
            tuple(source.data_ptr() for source in sources),
            out.data_ptr(),
            tuple(source.numel() for source in sources),
            dtype,
            operation,
            milliseconds,
        )
        self._check("reduce_scatter", failure, milliseconds)

    def _move(
        self,
        kind: Kind,
        root: int,
        size: int,
        outgoing: Sequence[Tensor],
        incoming: Sequence[Tensor],
        milliseconds: int,
    ) -> None:
        failure = self._memory.move(
            self._group,
            kind,
            root,
            size,
            _places(outgoing) or (0, 0),
            _places(incoming) or self._nothing,
            milliseconds,
        )
        self._check(kind.name.lower(), failure, milliseconds)

    def all_gather(self, outs: Sequence[Tensor], tensor: Tensor, milliseconds: int) -> None:
        """See :class:`Engine`."""
        sizes = {out.nbytes for out in outs}
        # Of uneven sizes each rank knows its own and the others'; these need not agree in advance.
        size = tensor.nbytes if sizes == {tensor.nbytes} else 0
        self._move(Kind.ALL_GATHER, 0, size, [tensor], outs, milliseconds)

    def broadcast(self, tensor: Tensor, root: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        place = (tensor.data_ptr(), tensor.nbytes)
        if root == self._position:
            outgoing, incoming = place, self._nothing
        else:
            outgoing = (0, 0)
            incoming = (0, 0) * root + place + (0, 0) * (self._ranks - root - 1)
        failure = self._memory.move(
            self._group, Kind.BROADCAST, root, tensor.nbytes, outgoing, incoming, milliseconds
        )
        self._check("broadcast", failure, milliseconds)

    def gather(self, outs: Sequence[Tensor], tensor: Tensor, root: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        # Others than the root know their own sizes alone.
        self._move(Kind.GATHER, root, 0, [tensor], outs, milliseconds)

    def scatter(self, out: Tensor, sources: Sequence[Tensor], root: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        place = (out.data_ptr(), out.nbytes)
        incoming = (0, 0) * root + place + (0, 0) * (self._ranks - root - 1)
        failure = self._memory.move(
            self._group,
            Kind.SCATTER,
            root,
            0,
            _places(sources) or self._nothing,
            incoming,
            milliseconds,
        )
        self._check("scatter", failure, milliseconds)

    def all_to_all(
        self, outs: Sequence[Tensor], sources: Sequence[Tensor], milliseconds: int
    ) -> None:
        """See :class:`Engine`."""
        own, ours = sources[self._position].nbytes, outs[self._position].nbytes
        if own != ours:
            raise ValueError(
                f"all_to_all: expected this rank to send itself the {ours} bytes that it receives, "
                f"got {own}"
            )
        self._move(Kind.ALL_TO_ALL, 0, 0, sources, outs, milliseconds)

    def barrier(self, milliseconds: int) -> None:
        """See :class:`Engine`."""
        self._check("barrier", self._memory.barrier(self._group, milliseconds), milliseconds)

    def send(self, tensor: Tensor, rank: int, tag: int) -> _LocalMessage:
        """See :class:`Engine`."""
        number = self._memory.send(self._group, rank, tag, tensor.data_ptr(), tensor.nbytes)
        return _LocalMessage(self, "send", number, tensor)

    def receive(self, tensor: Tensor, rank: int, tag: int) -> _LocalMessage:
        """See :class:`Engine`."""
        number = self._memory.receive(self._group, rank, tag, tensor.data_ptr(), tensor.nbytes)
        return _LocalMessage(self, "recv", number, tensor)

    def leave(self, error: SharedMemoryError | None = None) -> None:
        """See :class:`Engine`."""
        self._memory.leave(self._group, "" if error is None else note_of(error))

    def describe(self) -> dict[str, Any]:
        """See :class:`Engine`."""
        return {"hosts": [[member.global_rank for member in self._members]]}


class _LocalMessage:
    def __init__(self, engine: LocalEngine, what: str, number: int, tensor: Tensor) -> None:
        self._engine = engine
        self._what = what
        self._number = number
        # Written or read until the message is done.
        self._tensor: Tensor | None = tensor
        self._other: int | None = None

    def _told(self, told: tuple[int, Failure | None], milliseconds: int) -> int:
        other, failure = told
        if failure is None or failure[0] != Code.INTERRUPTED:
            self._tensor = None
        self._engine._check(self._what, failure, milliseconds)
        self._other = other
        return other

    def look(self) -> int | None:
        """See :class:`Message`."""
        if self._other is None:
            told = self._engine._memory.look(self._engine._group, self._number)
            return None if told is None else self._told(told, 0)
        return self._other

    def wait(self, milliseconds: int) -> int:
        """See :class:`Message`."""
        if self._other is None:
            told = self._engine._memory.wait(self._engine._group, self._number, milliseconds)
            return self._told(told, milliseconds)
        return self._other


def _places(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(word for t in tensors for word in (t.data_ptr(), t.nbytes))
