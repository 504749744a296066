"""The contract ``shared_memory/1``: how processes of one host reach one another without a network.

What an implementation loads is a function of no arguments that returns an object, or a module, with
the functions of :class:`SharedMemory`. They take raw addresses and never see a tensor. A *group* is
what :meth:`SharedMemory.join` returns. Each function that may fail returns a :data:`Failure`, or
None where all went well; only wrong arguments and signal handlers raise.

This module is what a plugin needs to implement the contract. It imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

from torchyard import ContractDefinition, RequestField

__all__ = [
    "CONTRACT",
    "DEFINITIONS",
    "DTYPES",
    "Code",
    "Failure",
    "Kind",
    "SharedMemory",
    "SharedMemoryRequest",
]

CONTRACT: Final = "shared_memory/1"

# A dtype's number is its place here. Booleans are bytes of 0 and 1.
DTYPES: Final = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)


class Kind(IntEnum):
    """What a collective is, as ranks announce it to one another."""

    BARRIER = 1
    ALL_REDUCE = 2
    REDUCE = 3
    REDUCE_SCATTER = 4
    ALL_GATHER = 5
    BROADCAST = 6
    GATHER = 7
    SCATTER = 8
    ALL_TO_ALL = 9


class Code(IntEnum):
    """Why something failed.

    ``DIED``: a process ended. ``LEFT``: a rank left the group. ``TIMEOUT``: ranks did not come in
    time. ``MISMATCH``: a rank is in another collective or brings another size. ``ELSEWHERE``:
    another rank, the witness, gave up before. ``CLOSED``: this rank left. ``FORKED``: the calling
    process was forked from a rank. ``INTERRUPTED``: a wait was given up.
    """

    DIED = 1
    TIMEOUT = 2
    MISMATCH = 3
    INTERRUPTED = 4
    CLOSED = 5
    ELSEWHERE = 6
    FORKED = 7
    LEFT = 8


# Code; a bit for each rank of the group that is at fault; the witness and its code, where the code
# is ELSEWHERE; what the first of those ranks announced and what this one did, as (word, bytes)
# twice, where it is MISMATCH: a word holds Kind, dtype + 1, operation + 1 and root in its four
# highest bytes.
Failure: TypeAlias = tuple[int, int, int, int, int, int, int, int]


class SharedMemory(Protocol):
    """What an implementation offers.

    A group's ranks are numbered from 0. Collectives of a group are called by all its ranks in the
    same order; results have the same bits on every rank, and sources are combined in the order of
    ranks. ``milliseconds`` bounds a wait. Operations are numbered as ``torch.distributed.ReduceOp``
    numbers them: sum, average, product, least, greatest, and, or, xor. float16 and bfloat16 are
    combined in float32 and rounded once.
    """

    MAX_RANKS: int

    def make_segment(self, ranks: int, /) -> int:
        """Return a file of shared memory for so many ranks; it has no name. Raises OSError."""
        ...

    def start_time(self, pid: int, /) -> int:
        """Return what distinguishes a process from later ones of its number; 0 once it ended."""
        ...

    def join(
        self, file: int, rank: int, pids: tuple[int, ...], starts: tuple[int, ...], /
    ) -> object:
        """Return a group of the processes given by number and start time. Raises OSError."""
        ...

    def meet(self, group: object, milliseconds: int, /) -> Failure | None:
        """Wait until all ranks have joined."""
        ...

    def leave(self, group: object, note: str, /) -> None:
        """End this rank's part: its waits fail, and others' that need it. The note says why."""
        ...

    def note(self, group: object, rank: int, /) -> str:
        """Return what a rank that left had to say; empty where nothing."""
        ...

    def reduces(self, dtype: int, operation: int, /) -> bool:
        """Say whether elements of the dtype can be combined so."""
        ...

    def all_reduce(
        self,
        group: object,
        source: int,
        out: int,
        count: int,
        dtype: int,
        operation: int,
        milliseconds: int,
        /,
    ) -> Failure | None:
        """Combine ``count`` elements; the two addresses may be the same."""
        ...

    def reduce(
        self,
        group: object,
        source: int,
        out: int,
        count: int,
        dtype: int,
        operation: int,
        root: int,
        milliseconds: int,
        /,
    ) -> Failure | None:
        """Likewise, for one rank."""
        ...

    def reduce_scatter(
        self,
        group: object,
        sources: tuple[int, ...],
        out: int,
        counts: tuple[int, ...],
        dtype: int,
        operation: int,
        milliseconds: int,
        /,
    ) -> Failure | None:
        """Combine every rank's ``sources[r]``, of ``counts[r]`` elements, for rank r."""
        ...

    def move(
        self,
        group: object,
        kind: int,
        root: int,
        size: int,
        outgoing: tuple[int, ...],
        incoming: tuple[int, ...],
        milliseconds: int,
        /,
    ) -> Failure | None:
        """Move bytes. Places are addresses and lengths, one after the other in a tuple.

        ``outgoing`` is one place, for all ranks, or one for each; ``incoming`` has one for what
        each rank sends, of length 0 where nothing is wanted. ``kind``, ``root`` and ``size`` must
        be the same on all ranks.
        """
        ...

    def barrier(self, group: object, milliseconds: int, /) -> Failure | None:
        """Wait until all ranks are here."""
        ...

    def send(self, group: object, rank: int, tag: int, data: int, size: int, /) -> int:
        """Start to send bytes, and return the message's number."""
        ...

    def receive(self, group: object, rank: int, tag: int, data: int, size: int, /) -> int:
        """Start to receive exactly so many bytes, from any rank where ``rank`` is -1."""
        ...

    def look(self, group: object, number: int, /) -> tuple[int, Failure | None] | None:
        """Return None while a message is on its way, then its other end and how it went."""
        ...

    def wait(self, group: object, number: int, milliseconds: int, /) -> tuple[int, Failure | None]:
        """Wait for a message. It is forgotten then."""
        ...


@dataclass(frozen=True, slots=True)
class SharedMemoryRequest:
    """Describe a group that wants to share memory.

    Attributes:
        device: torch device type whose tensors it moves.
        ranks: processes of the group on this host.
    """

    device: str
    ranks: int

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked."""
        return f"{self.device} ranks={self.ranks}"


_FIELDS: Final = (
    RequestField("device", "torch device type", "cpu"),
    RequestField("ranks", "processes of the group on this host", "2"),
)


def _parse_request(text: Mapping[str, str]) -> SharedMemoryRequest:
    if not text["ranks"].isdecimal() or int(text["ranks"]) < 1:
        raise ValueError(f"ranks: expected a whole number of at least 1, got {text['ranks']!r}")
    return SharedMemoryRequest(text["device"], int(text["ranks"]))


def _representative_requests(device: str) -> Iterable[SharedMemoryRequest]:
    return [SharedMemoryRequest(device, ranks) for ranks in (2, 8)]


DEFINITIONS: Final = {
    CONTRACT: ContractDefinition(
        contract=CONTRACT,
        summary="collectives between processes of one host through shared memory",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_requests,
    )
}
