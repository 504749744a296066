"""An index that misbehaves on demand: what the fault matrix publishes to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from torchyard_release._index._server import HANG_UP, Answer, IndexServer

__all__ = ["STALL_SECONDS", "FaultyIndex"]

# How late a stalled upload is answered.
STALL_SECONDS: Final = 9.0


class FaultyIndex(IndexServer):
    """Serve an index, with faults that are switched on by name.

    Attributes:
        refuse: file name -> the statuses that its next uploads are answered with, untaken.
        hang_up: names whose next upload is taken, and whose uploader gets no answer.
        stall: names whose next upload is taken, and answered after STALL_SECONDS.
        late: name -> how often a project's page does not list it yet.
        tampered: names that are served with other bytes than were uploaded.
        down: how many of the next requests for pages are answered 503.
        asked: every upload that was tried, by name, taken or not.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        super().__init__(folder, port=port)
        self.refuse: dict[str, list[int]] = {}
        self.hang_up: set[str] = set()
        self.stall: set[str] = set()
        self.late: dict[str, int] = {}
        self.tampered: set[str] = set()
        self.down = 0
        self.asked: list[str] = []

    def take(self, name: str, content: bytes, said: str) -> Answer:
        """Take an upload, unless a fault says otherwise."""
        self.asked.append(name)
        if self.refuse.get(name):
            return Answer(self.refuse[name].pop(0), b"a fault")
        answer = super().take(name, content, said)
        if name in self.stall:
            self.stall.discard(name)
            time.sleep(STALL_SECONDS)
        if name in self.hang_up:
            self.hang_up.discard(name)
            return HANG_UP
        return answer

    def give(self, path: str, accepted: str) -> Answer:
        """Give a page or a file, unless a fault says otherwise."""
        if self.down and path.startswith("/simple/"):
            self.down -= 1
            return Answer(503)
        answer = super().give(path, accepted)
        name = path.rpartition("/")[2]
        if name in self.tampered:
            return Answer(answer.status, answer.content + b"x", answer.kind)
        for late, times in self.late.items():
            if times and path.startswith("/simple/") and late.encode() in answer.content:
                self.late[late] -= 1
                return Answer(404, b"not listed yet")
        return answer
