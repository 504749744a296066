"""Errors between processes, by kind, with the ranks at fault."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from torchyard_collectives.contract import DTYPES, Code, Failure, Kind

__all__ = [
    "ForkedProcessError",
    "GroupClosedError",
    "RankLostError",
    "RankMismatchError",
    "RankTimeoutError",
    "SharedMemoryError",
    "WaitTimeoutError",
    "failure_error",
    "note_of",
    "noted_error",
]

_NOTE_LETTERS: Final = 600
_OPERATIONS: Final = ("sum", "average", "product", "min", "max", "and", "or", "xor")


class SharedMemoryError(RuntimeError):
    """A group that shares memory cannot go on, and must be made again.

    Attributes:
        ranks: the ranks at fault, as numbered in the default group.
    """

    def __init__(self, message: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class RankLostError(SharedMemoryError):
    """A rank's process ended, or left the group, while others needed it."""


class RankTimeoutError(SharedMemoryError):
    """Ranks did not come to an operation in time."""


class RankMismatchError(SharedMemoryError):
    """Ranks called different collectives, or the same with different sizes."""


class GroupClosedError(SharedMemoryError):
    """This rank destroyed the group, or a wait in it was given up."""


class WaitTimeoutError(SharedMemoryError, TimeoutError):
    """An operation had not ended when the time that one wait gave it had passed; it goes on."""


class ForkedProcessError(SharedMemoryError):
    """The calling process was forked from a rank, and is none itself."""


def failure_error(
    failure: Failure, what: str, members: Sequence[tuple[int, int]], seconds: float
) -> SharedMemoryError:
    """Return the error that a failure is.

    Args:
        failure: the failure.
        what: the operation and its group, for a sentence.
        members: of each rank of the group its global rank and process number.
        seconds: how long the operation was to wait.
    """
    code, faulty, witness, reason, *announced = failure
    local = [rank for rank in range(len(members)) if faulty >> rank & 1]
    ranks = [members[rank][0] for rank in local]
    named = _named([members[rank] for rank in local])
    own = "in this process"
    if code == Code.ELSEWHERE:
        own = f"as rank {members[witness][0]} reported before"
        code = reason
    verb = "has" if len(ranks) == 1 else "have"
    if code == Code.DIED:
        return RankLostError(f"{what}: {named} died ({own}); start the job again", ranks)
    if code == Code.LEFT:
        return RankLostError(
            f"{what}: {named} {verb} left the group ({own}); destroy a group only when all its "
            "ranks are done with it",
            ranks,
        )
    if code == Code.TIMEOUT:
        return RankTimeoutError(
            f"{what}: {named or 'some rank'} did not come within the timeout ({own}, after "
            f"{seconds:g} s); look for what kept it, or raise the timeout",
            ranks,
        )
    if code == Code.MISMATCH:
        detail = ""
        if any(announced):
            theirs, ours = _announced(*announced[:2]), _announced(*announced[2:])
            detail = f" is in {theirs}, this rank in {ours}"
        return RankMismatchError(
            f"{what}: {named}{detail or ' disagrees'} ({own}); ranks must call the same "
            "collectives in the same order, with the same sizes",
            ranks,
        )
    if code == Code.FORKED:
        return ForkedProcessError(
            f"{what}: this process was forked from a rank; call collectives in the process that "
            "made the group"
        )
    return GroupClosedError(f"{what}: the group was destroyed or given up ({own})", ranks)


def note_of(error: SharedMemoryError) -> str:
    """Return an error as a note for the other ranks."""
    # Room for it is limited, and a text that is cut is still one.
    return json.dumps([type(error).__name__, error.ranks, str(error)[:_NOTE_LETTERS]])


def noted_error(what: str, note: str) -> SharedMemoryError:
    """Return the error that a rank left behind."""
    kind, ranks, text = json.loads(note)
    found = {each.__name__: each for each in (RankLostError, RankTimeoutError)}
    return found.get(kind, SharedMemoryError)(f"{what}: {text}", ranks)


def _named(members: Sequence[tuple[int, int]]) -> str:
    return " and ".join(f"rank {rank} (process {pid})" for rank, pid in members)


def _announced(word: int, size: int) -> str:
    """Return what an announcement says: see :data:`~torchyard_collectives.contract.Failure`."""
    if not word:
        return f"a message of {size} bytes"
    kind, dtype, operation, root = (word >> shift & 0xFF for shift in (56, 48, 40, 32))
    text = Kind(kind).name.lower()
    if kind in (Kind.REDUCE, Kind.BROADCAST, Kind.GATHER, Kind.SCATTER):
        text += f" with root {root}"
    if operation:
        text += f" ({_OPERATIONS[operation - 1]}, {DTYPES[dtype - 1]})"
    return f"{text} of {size} bytes" if size else text
