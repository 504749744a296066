"""A page's commands, run one by one as a reader would, and timed.

A page marks the console blocks of a walk with ``<!-- walk: NAME -->``. ``nox -s template`` runs
this as a program, in an environment that holds nothing but pip.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Outcome", "Step", "Walk", "steps"]

_BLOCK: Final = re.compile(
    r"^<!-- walk: (?P<walk>[\w-]+) -->\n+```console\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command that a page shows.

    Attributes:
        command: what stands behind the prompt.
        shown: the lines of its output that the page shows.
    """

    command: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command.

    Attributes:
        step: the command.
        code: its exit status.
        output: everything that it wrote.
        seconds: wall time.
    """

    step: Step
    code: int
    output: str
    seconds: float

    @property
    def missing(self) -> list[str]:
        """The lines that the page shows and the command did not write; blanks do not count."""
        written = {_words(line) for line in self.output.splitlines()}
        return [line for line in self.step.shown if _words(line) not in written]

    @property
    def right(self) -> bool:
        """Whether the command succeeded and wrote what the page shows."""
        return self.code == 0 and not self.missing


def steps(page: str, walk: str) -> list[Step]:
    """Return the commands of a walk, in the page's order."""
    found: list[tuple[str, list[str]]] = []
    for block in _BLOCK.finditer(page):
        if block["walk"] != walk:
            continue
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif line.strip():
                found[-1][1].append(line)
    return [Step(command, tuple(lines)) for command, lines in found]


class Walk:
    """Run commands one after another, each where the one before left off.

    Args:
        folder: where the first one runs.
        environment: the variables that all of them see.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = dict(environment)

    def run(self, step: Step) -> Outcome:
        """Run one command; ``cd`` stays in force for the next."""
        start = time.perf_counter()
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{step.command}\nprintf '\\n%s' \"$PWD\""],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        seconds = time.perf_counter() - start
        output = result.stdout
        if result.returncode == 0:
            output, _, folder = output.rpartition("\n")
            self.folder = Path(folder)
        return Outcome(step, result.returncode, output, seconds)


def _words(line: str) -> str:
    return " ".join(line.split())


def _main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run a page's walks; print each command's time.")
    parser.add_argument("page", type=Path)
    parser.add_argument("walks", nargs="+")
    parser.add_argument("--folder", type=Path, required=True, help="where the first command runs")
    options = parser.parse_args(arguments)
    page = options.page.read_text(encoding="utf-8")
    import os

    for name in options.walks:
        walk, total = Walk(options.folder, os.environ), 0.0
        for step in steps(page, name):
            outcome = walk.run(step)
            total += outcome.seconds
            print(f"{outcome.seconds:7.1f} s  {step.command}", flush=True)
            if not outcome.right:
                print(outcome.output, f"exit status {outcome.code}", *outcome.missing, sep="\n")
                return 1
        print(f"{total:7.1f} s  {name}: everything", flush=True)
        if not total:
            print(f"{name}: the page has no such walk")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
