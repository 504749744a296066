"""Histories of jobs that never ran, for tests of the analyser."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torchyard_collectives.flight._history import (
    Ending,
    EndingKind,
    Frame,
    Group,
    RankHistory,
    Record,
    State,
    TensorSpec,
)

__all__ = ["Call", "Job", "line"]

_MILLISECOND = 1_000_000
_OUTPUTS = frozenset({"all_gather_into_tensor", "reduce_scatter_tensor"})


def line(number: int, function: str = "train") -> tuple[Frame, ...]:
    """Return a call site."""
    return (Frame("train.py", number, function), Frame("train.py", 900, "<module>"))


@dataclass(frozen=True)
class Call:
    """A collective of a program."""

    op: str
    shape: tuple[int, ...] = (4,)
    dtype: str = "float32"
    site: int = 1
    group: str = "0"
    reduce: str = "sum"


@dataclass
class Job:
    """What each rank's program does; :meth:`histories` runs it in lock step.

    A collective ends when all of its ranks have made the same one; a rank that waits in one goes
    no further. Each rank's clocks are its own.

    Attributes:
        groups: ranks by name.
        programs: calls per rank.
        skews: what a rank's wall clock is wrong by, in nanoseconds.
        boots: what a rank's monotonic clock begins at.
        capacity: of the rings.
        delays: nanoseconds that a rank idles before its call of a number.
        endings: of ranks that have ended.
        without_dump: ranks that leave none.
        waited: nanoseconds after which the dumps of a job that hangs are written.
        hosts: that the ranks are spread over.
    """

    groups: dict[str, tuple[int, ...]]
    programs: list[list[Call]]
    skews: dict[int, int] = field(default_factory=dict)
    boots: dict[int, int] = field(default_factory=dict)
    capacity: int = 1000
    delays: dict[tuple[int, int], int] = field(default_factory=dict)
    endings: dict[int, EndingKind] = field(default_factory=dict)
    without_dump: frozenset[int] = frozenset()
    waited: int = 5_000_000_000
    hosts: int = 2

    def histories(self) -> list[RankHistory]:
        """Run the programs as far as they go; return what the ranks' dumps would hold."""
        size = len(self.programs)
        now = [1_000_000_000] * size
        position = [0] * size
        records: list[list[Record]] = [[] for _ in range(size)]
        issued: list[dict[str, int]] = [dict.fromkeys(self.groups, 0) for _ in range(size)]
        waiting: dict[tuple[str, int], dict[int, int]] = {}
        blocked: set[int] = set()
        moved = True
        while moved:
            moved = False
            for rank in range(size):
                if rank in blocked or position[rank] >= len(self.programs[rank]):
                    continue
                moved = True
                call = self.programs[rank][position[rank]]
                now[rank] += _MILLISECOND + self.delays.get((rank, position[rank]), 0)
                number = issued[rank][call.group]
                issued[rank][call.group] += 1
                position[rank] += 1
                records[rank].append(self._record(call, number, now[rank]))
                here = waiting.setdefault((call.group, number), {})
                here[rank] = len(records[rank]) - 1
                blocked.add(rank)
                if len(here) == len(self.groups[call.group]) and self._alike(here, records):
                    end = max(now[one] for one in here) + _MILLISECOND // 2
                    for one, index in here.items():
                        now[one] = end
                        blocked.discard(one)
                        records[one][index] = replace(
                            records[one][index], completed=end, state=State.COMPLETED
                        )
        over = max(now) + (self.waited if blocked else 0)
        return [
            self._history(rank, records[rank], issued[rank], over)
            for rank in range(size)
            if rank not in self.without_dump
        ]

    def _alike(self, here: dict[int, int], records: list[list[Record]]) -> bool:
        return len({(records[r][i].op, records[r][i].inputs) for r, i in here.items()}) == 1

    def _record(self, call: Call, number: int, now: int) -> Record:
        spec = (TensorSpec(call.shape, call.dtype),)
        return Record(
            group=call.group,
            sequence=number,
            op=call.op,
            inputs=() if call.op == "barrier" else spec,
            outputs=spec if call.op in _OUTPUTS else (),
            arguments=(("reduce", call.reduce),) if "reduce" in call.op else (),
            site=line(call.site),
            entered=now,
            started=now + 1000,
            state=State.STARTED,
        )

    def _history(
        self, rank: int, records: list[Record], issued: dict[str, int], over: int
    ) -> RankHistory:
        boot = self.boots.get(rank, 0)
        moved = tuple(
            replace(
                record,
                entered=record.entered + boot,
                started=None if record.started is None else record.started + boot,
                completed=None if record.completed is None else record.completed + boot,
            )
            for record in records[-self.capacity :]
        )
        kind = self.endings.get(rank, EndingKind.RUNNING)
        return RankHistory(
            rank=rank,
            world_size=len(self.programs),
            groups={
                name: Group(name, ranks, issued=issued[name])
                for name, ranks in self.groups.items()
                if rank in ranks
            },
            records=moved,
            host=f"host{rank % self.hosts}",
            wall_minus_monotonic=self.skews.get(rank, 0) - boot,
            dumped=over + boot,
            dropped=max(len(records) - self.capacity, 0),
            ending=Ending(kind, str(kind)),
        )
