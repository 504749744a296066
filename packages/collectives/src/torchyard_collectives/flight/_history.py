"""What one rank recorded: the data that a dump holds and the analyser reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from torchyard.evidence.documents import AtMost, Between

__all__ = [
    "NO_DUMP",
    "Branch",
    "Count",
    "Creation",
    "Ending",
    "EndingKind",
    "Frame",
    "Group",
    "Rank",
    "RankHistory",
    "Record",
    "State",
    "TensorSpec",
    "Text",
]

# What a file may say: a dump has been written by another machine.
Count = Annotated[int, Between(0, 1 << 63)]
Rank = Annotated[int, Between(0, 1 << 24)]
Text = Annotated[str, AtMost(1 << 16)]

# The reason given in a history read from a journal.
NO_DUMP: Final = "the journal of a process that wrote no dump"


class State(StrEnum):
    """How far a call got.

    ``entered``: inside the backend, which has not handed the work back; ``started``: the backend
    has it and it is not over; ``completed`` and ``failed``: over.
    """

    ENTERED = "entered"
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def outstanding(self) -> bool:
        """Whether the call is still waited for."""
        return self in (State.ENTERED, State.STARTED)


class EndingKind(StrEnum):
    """How a process stood when its dump was written."""

    RUNNING = "running"
    EXIT = "exit"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's shape and dtype (torch's name without ``torch.``)."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Branch:
    """An ``if`` around a call site: its lines, the arm that holds the site, and its test."""

    line: Count
    end: Count
    arm: Text
    test: Text


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of the user's program on the way to a collective.

    Attributes:
        file: the source file.
        line: the line that runs.
        function: the function's name.
        branches: the ``if`` statements of the function around the line, innermost first; known only
            for the innermost frame, and where the source could be read.
        upcoming: collectives that the source names after this line in the same block.
    """

    file: Text
    line: Count
    function: Text
    branches: tuple[Branch, ...] = ()
    upcoming: tuple[Text, ...] = ()

    @property
    def place(self) -> tuple[str, int, str]:
        """What distinguishes two frames."""
        return self.file, self.line, self.function

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Record:
    """One call of one rank.

    Attributes:
        group: the group's name.
        sequence: the call's number, from 0, among the group's collectives; of a send or receive,
            among those in the same direction with the same peer.
        op: torch's public name, such as ``all_reduce``.
        inputs, outputs: what the call reads and writes.
        arguments: what else has to agree: ``reduce``, ``root``, ``splits``, as text.
        peer: the global rank at the other end of a send or receive; -1 for a receive from anyone.
        tag: of a send or receive.
        site: the user's frames, innermost first.
        entered, started, completed: nanoseconds of the rank's monotonic clock. ``completed`` is
            when the recorder first saw the end, and so an upper bound.
        state: how far it got.
        error: what the backend said of a failed call.
    """

    group: str
    sequence: int
    op: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    peer: int | None = None
    tag: int = 0
    site: tuple[Frame, ...] = ()
    entered: int = 0
    started: int | None = None
    completed: int | None = None
    state: State = State.COMPLETED
    error: str = ""

    @property
    def is_p2p(self) -> bool:
        """Whether this is a send or a receive."""
        return self.peer is not None

    @property
    def places(self) -> tuple[tuple[str, int, str], ...]:
        """The call site without what was read from the source."""
        return tuple(frame.place for frame in self.site)

    def describe(self) -> str:
        """Return the call in one line, without its site."""
        words = [str(spec) for spec in self.inputs] or [str(spec) for spec in self.outputs]
        words += [f"{name}={value}" for name, value in self.arguments]
        if self.peer is not None:
            words.append(f"peer={self.peer}")
        return f"{self.op}({', '.join(words)})"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as one rank knows it.

    Attributes:
        name: torch's name of the group, the same on all its ranks.
        description: torch's description.
        backend: the backend's name.
        ranks: global ranks in the order of the group.
        issued: how many collectives this rank has issued, kept or not.
        numbered: whether ``sequence`` counts from the group's first collective on every rank; not
            so where the recorder was switched on later.
    """

    name: Text
    ranks: tuple[Rank, ...]
    description: Text = ""
    backend: Text = ""
    issued: Count = 0
    numbered: bool = True


@dataclass(frozen=True, slots=True)
class Creation:
    """One rank's call that makes a process group, which every rank of the job has to make.

    Attributes:
        name: the group's name: how many calls came before it, as torch counts them.
        ranks: the group's global ranks.
        entered: nanoseconds of the rank's monotonic clock.
        over: whether the rank is past it, as one that is not in the group always is.
        site: the user's frames, innermost first.
    """

    name: str
    ranks: tuple[int, ...]
    entered: int = 0
    over: bool = True
    site: tuple[Frame, ...] = ()

    @property
    def number(self) -> int:
        """How many such calls came before."""
        return int(self.name)


@dataclass(frozen=True, slots=True)
class Ending:
    """How the process ended, if it did: ``text`` is the exception or signal, ``site`` its place."""

    kind: EndingKind = EndingKind.RUNNING
    text: Text = ""
    site: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class RankHistory:
    """All that is known of one rank.

    Attributes:
        rank, world_size: of the default group.
        host, pid: where it runs.
        reason: why the dump was written.
        wall_minus_monotonic: nanoseconds to add to the monotonic clock to get the wall clock.
        dumped: when, on the monotonic clock; None where the source does not say.
        dropped: how many older records the ring has lost.
        groups: by name.
        records: oldest first.
        stack: what the main thread was doing, innermost first.
        ending: how the process ended.
        source: the file.
        creations: the calls that make groups, oldest first; None where the source does not say.
    """

    rank: int
    world_size: int
    groups: Mapping[str, Group]
    records: tuple[Record, ...]
    host: str = ""
    pid: int = 0
    reason: str = ""
    wall_minus_monotonic: int = 0
    dumped: int | None = None
    dropped: int = 0
    stack: tuple[Frame, ...] = ()
    ending: Ending = field(default_factory=Ending)
    source: str = ""
    creations: tuple[Creation, ...] | None = None

    def wall(self, monotonic: int) -> int:
        """Return the rank's own wall clock, in nanoseconds, at a time of its monotonic clock."""
        return monotonic + self.wall_minus_monotonic
