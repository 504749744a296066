"""A clone on which a train is rehearsed: its commands, each timed and held to an exit status."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packages.release.tests.killing import kill_at

__all__ = ["Ran", "Rehearsal"]


@dataclass(frozen=True, slots=True)
class Ran:
    """One command that was run."""

    words: tuple[str, ...]
    seconds: float
    code: int


@dataclass
class Rehearsal:
    """A clone on which a train is rehearsed.

    Attributes:
        root: the clone's root; it is changed.
        folder: where keys, the index and what is fetched from it are put.
        say: receives each command, and how it ended.
        ran: every command so far.
    """

    root: Path
    folder: Path
    say: Callable[[str], object] = print
    ran: list[Ran] = field(default_factory=list)

    def release(self, *words: str, code: int = 0) -> Any:
        """Run ``torchyard release`` and return its document; the exit status must be the one."""
        program = "from torchyard_release._cli import command; command(prog_name='release')"
        line = [sys.executable, "-c", program, *words, "--json"]
        out = self._run(line, ("torchyard", "release", *words), code)
        return json.loads(out) if out.strip() else None

    def kill(self, *words: str, at: int) -> str:
        """End ``torchyard release`` by SIGKILL from outside, when it has written a line.

        Returns:
            what was done, for the table of faults.
        """
        began = time.monotonic()
        code = kill_at(self.root, words, at=at, when="after")
        shown = ("torchyard", "release", *words)
        self.ran.append(Ran(shown, time.monotonic() - began, code))
        assert code == -signal.SIGKILL, f"{' '.join(shown)}: expected to be killed, got {code}"
        self.say(f"killed after line {at} of its journal: {' '.join(shown)}")
        return f"SIGKILL after line {at} of `{words[0]}`"

    def git(self, *words: str) -> str:
        """Run git in the clone."""
        return self._run(["git", "-C", str(self.root), *words], ("git", *words), 0).strip()

    def commit(self, message: str) -> str:
        """Commit everything and return the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", f"--message={message}")
        return self.git("rev-parse", "HEAD")

    def _run(self, line: Sequence[str], shown: tuple[str, ...], code: int) -> str:
        began = time.monotonic()
        done = subprocess.run(line, cwd=self.root, capture_output=True, text=True)
        seconds = time.monotonic() - began
        if shown[0] != "git":
            self.ran.append(Ran(shown, seconds, done.returncode))
            self.say(f"{seconds:7.1f} s  exit {done.returncode}  {' '.join(shown)}")
        if done.returncode != code:
            raise AssertionError(
                f"{' '.join(shown)}: expected exit status {code}, got {done.returncode}\n"
                f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
        return done.stdout
