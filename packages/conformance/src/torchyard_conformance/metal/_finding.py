"""``Finding``: a fault of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["KINDS", "Finding"]

# Kind -> what it says.
KINDS: Final = {
    "aliasing": "threads conflict in memory that several buffers share",
    "bfloat-overflow": "a finite value becomes an infinite bfloat",
    "crash": "the kernel ends by a signal",
    "divergent-barrier": "not all threads come to a barrier, or they come to different ones",
    "divergent-simdgroup": "not all lanes take part in an operation that needs all",
    "half-overflow": "a finite value becomes an infinite half",
    "inactive-lane": "a lane reads the value of a lane that does not take part",
    "misaligned": "a vector is accessed at an address that is no multiple of its alignment",
    "missing-atomic": "threads update one place without atomic operations",
    "missing-barrier": "threads of a threadgroup write and read one place with no barrier between",
    "order": "the result depends on the order of threads",
    "out-of-bounds": "an access before or behind a buffer, or a threadgroup's or thread's array",
    "race": "threads access one place, one of them writes, and nothing orders them",
    "simd-width": "the kernel is right only for some number of lanes of a simdgroup",
    "stack-overflow": "a thread's own memory does not suffice",
    "stride": "an access between the elements of a strided buffer",
    "threadgroup-memory": "a threadgroup has more memory than an Apple GPU gives it",
    "timeout": "the kernel does not end",
    "undefined": "undefined behaviour of C++, such as an overflow of signed integers",
    "uninitialised-read": "a read of memory that nothing was written to",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a kernel, as one thread showed it.

    Attributes:
        kind: a name of ``KINDS``.
        kernel: the kernel's name.
        line: of the source, from 1; 0 where none is known.
        thread: position in the threadgroup.
        group: the threadgroup's position in the grid.
        buffer: the parameter or the threadgroup variable; empty where none is concerned. Where
            several buffers share the memory, all of them, joined by commas.
        index: of its element; negative before the first. None where no buffer is concerned.
        other_line: the line that the access conflicts with; 0 where there is none.
        other_thread: who accessed there, in ``other_group``.
        other_group: see ``other_thread``.
        text: what happened, in words.
        width: lanes of a simdgroup in the run that showed it.
        order: of the threads in that run; 0: theirs.
        count: how many times it was seen in that run.
    """

    kind: str
    kernel: str
    line: int
    thread: tuple[int, int, int]
    group: tuple[int, int, int]
    buffer: str
    index: int | None
    text: str
    other_line: int = 0
    other_thread: tuple[int, int, int] | None = None
    other_group: tuple[int, int, int] | None = None
    width: int = 32
    order: int = 0
    count: int = 1

    def __str__(self) -> str:
        place = f" {self.buffer}[{self.index}]" if self.index is not None else ""
        other = ""
        if self.other_thread is not None:
            line = f" at line {self.other_line}" if self.other_line else ""
            other = f"; conflicts with thread {self.other_thread} of {self.other_group}{line}"
        return (
            f"{self.kind}: {self.kernel}, line {self.line}:{place} by thread {self.thread} of "
            f"threadgroup {self.group}: {self.text}{other} (simdgroups of {self.width}, order "
            f"{self.order}, seen {self.count} times)"
        )
