"""What outlives a process that cannot write a dump any more: its ring as a mapped file.

gloo ends the process from a thread of its own when sizes do not match, a kernel kills it when
memory runs out, an extension may hang with the GIL held: none of them lets Python write. So every
call is also written into a mapped file, which the system keeps. Two files of JSON lines per rank:
``journal-R.names`` grows by a line per group and call site, ``journal-R.slots`` has a line of fixed
width per call, whose first letter is the state. A dump that the process does write replaces both.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import time
from pathlib import Path
from typing import IO, Any, Final

__all__ = ["NAMES", "SLOTS", "WIDTH", "Journal"]

NAMES: Final = "journal-{rank}.names"
SLOTS: Final = "journal-{rank}.slots"
WIDTH: Final = 192
# A program that makes up call sites without end is not to fill the disk.
_MOST_NAMES: Final = 50_000


class Journal:
    """One rank's journal, opened when the rank is known.

    Args:
        folder: where the dumps go too.
        rank, world_size: of the default group.
        capacity: calls that are kept.
    """

    def __init__(self, folder: Path, rank: int, world_size: int, capacity: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / name.format(rank=rank) for name in (NAMES, SLOTS)]
        self._capacity = capacity
        self._names: dict[Any, int] = {}
        self._count = 0
        self._file: IO[str] = self._paths[0].open("w", encoding="utf-8")
        with self._paths[1].open("w+b") as slots:
            os.truncate(slots.fileno(), capacity * WIDTH)
            self._map = mmap.mmap(slots.fileno(), capacity * WIDTH)
        self._line(
            {
                "kind": "head",
                "rank": rank,
                "world_size": world_size,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "wall_minus_monotonic": time.time_ns() - time.monotonic_ns(),
            }
        )

    def known(self, key: Any) -> int | None:
        """Return the number of a name, or None for a new one."""
        return self._names.get(key)

    def name(self, key: Any, data: dict[str, Any]) -> int:
        """Write a name down and return its number."""
        number = self._names[key] = len(self._names)
        if number < _MOST_NAMES:
            self._line({"kind": "name", "number": number, **data})
        return number

    def group(self, data: dict[str, Any]) -> None:
        """Write a group down."""
        self._line({"kind": "group", **data})

    def put(self, name: int, sequence: int, entered: int, peer: int, shapes: str) -> int:
        """Write a call down as entered; return where, for :meth:`mark`."""
        text = f'e{{"n":{name},"s":{sequence},"t":{entered},"p":{peer},"i":"{shapes}"}}'
        if len(text) >= WIDTH:
            text = f'e{{"n":{name},"s":{sequence},"t":{entered},"p":{peer},"i":"?"}}'
        place = self._count % self._capacity * WIDTH
        self._count += 1
        self._map[place : place + WIDTH] = text.encode().ljust(WIDTH - 1) + b"\n"
        return place

    def mark(self, place: int, state: int) -> None:
        """Write the state of a call: the letter that it begins with."""
        self._map[place] = state

    def close(self, *, remove: bool) -> None:
        """Close the files; remove them where a dump says all that they say."""
        self._file.close()
        self._map.close()
        if remove:
            for path in self._paths:
                path.unlink(missing_ok=True)

    def _line(self, data: dict[str, Any]) -> None:
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()
