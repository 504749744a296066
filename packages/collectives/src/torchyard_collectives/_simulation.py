"""All ranks of a group in one process: threads that synchronise at each op, on plain torch.

This is the truth of the gradient oracle: the ranks' tensors are parts of one graph, so autograd
differentiates the whole program, and no convention is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from torch import Tensor

from torchyard_collectives._errors import CallMismatchError, GroupError

__all__ = ["Meeting", "Seat", "current", "simulate"]

_WAIT_SECONDS: Final = 60.0
_seats = threading.local()


class Meeting(Protocol):
    """What an op is to the simulation: all ranks' inputs to all ranks' outputs."""

    @property
    def name(self) -> str:
        """The op's name."""

    def together(self, xs: list[Tensor], args: list[tuple[Any, ...]]) -> list[Tensor]:
        """Return each rank's output from every rank's input and arguments."""


class _Table:
    """The rendezvous of one group's ranks."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.ranks = ranks
        self.barrier = threading.Barrier(len(ranks))
        self.given: list[tuple[Meeting, Tensor, tuple[Any, ...]] | None] = [None] * len(ranks)
        self.results: list[Tensor] = []

    def meet(self, place: int, op: Meeting, x: Tensor, args: tuple[Any, ...]) -> Tensor:
        self.given[place] = (op, x, args)
        if self.barrier.wait(_WAIT_SECONDS) == 0:
            given = [item for item in self.given if item is not None]
            names = [item[0].name for item in given]
            if len(set(names)) != 1:
                self.barrier.abort()
                raise CallMismatchError(f"ranks {list(self.ranks)} called {names}")
            try:
                self.results = op.together([item[1] for item in given], [i[2] for i in given])
            except BaseException:
                self.barrier.abort()
                raise
        self.barrier.wait(_WAIT_SECONDS)
        result = self.results[place]
        # No rank may start the next meeting before all have taken what is theirs.
        self.barrier.wait(_WAIT_SECONDS)
        return result


class World:
    """The simulated processes' tables, by the ranks that sit at them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.tables: dict[tuple[int, ...], _Table] = {}
        self.mail: dict[tuple[str, int, int], list[Tensor]] = {}
        self.posted = threading.Condition()
        self.failed = False

    def table(self, ranks: tuple[int, ...]) -> _Table:
        """Return the table of some ranks."""
        with self.lock:
            return self.tables.setdefault(ranks, _Table(ranks))

    def fail(self) -> None:
        """Let nobody wait any longer."""
        with self.lock:
            for table in self.tables.values():
                table.barrier.abort()
        with self.posted:
            self.failed = True
            self.posted.notify_all()


class Seat:
    """One simulated process."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank

    def resolve(self, group: object) -> tuple[str, int, int]:
        """Return the name, this process's place and the size of a group of ranks."""
        ranks = tuple(range(self.world.size)) if group is None else group
        if not isinstance(ranks, tuple | list) or not all(isinstance(r, int) for r in ranks):
            raise GroupError(
                f"group: a simulated run knows None and global ranks, got {group!r}; pass those"
            )
        if self.rank not in ranks:
            raise GroupError(f"group: rank {self.rank} is not a member of {list(ranks)}")
        name = ",".join(map(str, ranks))
        return name, list(ranks).index(self.rank), len(ranks)

    def meet(self, op: Meeting, x: Tensor, args: tuple[Any, ...]) -> Tensor:
        """Run an op together with the other ranks of its group, which ``args`` ends with."""
        ranks = tuple(map(int, args[-1].split(",")))
        return self.world.table(ranks).meet(ranks.index(self.rank), op, x, args)

    def post(self, x: Tensor, group: str, dst: int) -> None:
        """Put down a message."""
        place = [int(rank) for rank in group.split(",")].index(self.rank)
        with self.world.posted:
            self.world.mail.setdefault((group, place, dst), []).append(x)
            self.world.posted.notify_all()

    def fetch(self, group: str, src: int) -> Tensor:
        """Take the oldest message."""
        key = (group, src, [int(rank) for rank in group.split(",")].index(self.rank))
        with self.world.posted:
            self.world.posted.wait_for(
                lambda: self.world.failed or self.world.mail.get(key), _WAIT_SECONDS
            )
            if not self.world.mail.get(key):
                raise CallMismatchError(f"rank {key[2]} waits for a message that {src} never sent")
            return self.world.mail[key].pop(0)


def current() -> Seat | None:
    """Return the simulated process that this thread is, or None."""
    return getattr(_seats, "seat", None)


def simulate(size: int, program: Callable[[int], Any]) -> list[Any]:
    """Run ``program(rank)`` for every rank, in threads that synchronise at each op.

    Raises:
        Exception: what the first rank that failed raised.
    """
    world = World(size)
    results: list[Any] = [None] * size
    failures: list[BaseException] = []

    def sit(rank: int) -> None:
        _seats.seat = Seat(world, rank)
        try:
            results[rank] = program(rank)
        except BaseException as failure:
            failures.append(failure)
            world.fail()
        finally:
            _seats.seat = None

    threads = [threading.Thread(target=sit, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise _cause(failures)
    return results


def _cause(failures: Sequence[BaseException]) -> BaseException:
    """Return the failure that broke the others' meetings."""
    own = [item for item in failures if not isinstance(item, threading.BrokenBarrierError)]
    if own:
        return own[0]
    return CallMismatchError(f"some ranks made a call that others did not, in {_WAIT_SECONDS:g} s")
