"""A page's commands, run one by one as a reader would, and timed.

A page marks the console blocks of a walk with ``<!-- walk: NAME -->``, and those that take minutes
with ``<!-- walk: NAME, slow -->``. ``nox -s template`` runs all of them: this is then a program,
which begins with an environment that holds nothing but pip.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGE", "Outcome", "Step", "Walk", "steps"]

_ROOT: Final = Path(__file__).parents[2]
PAGE: Final = _ROOT / "docs" / "plugins" / "quickstart.md"
_BLOCK: Final = re.compile(
    r"^<!-- walk: (?P<walk>[\w-]+)(?P<slow>, slow)? -->\n+```console\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command that a page shows.

    Attributes:
        command: the text after the prompt.
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


def steps(page: str, walk: str, *, slow: bool = False) -> list[Step]:
    """Return the commands of a walk, in the page's order; those that take minutes if wanted."""
    found: list[tuple[str, list[str]]] = []
    for block in _BLOCK.finditer(page):
        if block["walk"] != walk or (block["slow"] and not slow):
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


def _from_nothing(folder: Path, wheels: list[str]) -> dict[str, str]:
    """Make an environment that holds pip alone, and what the page takes to be there.

    Args:
        folder: where.
        wheels: of our own packages, which are on no index; everything else is fetched.
    """
    venv.create(folder / "environment", with_pip=True)
    (folder / "torchyard").symlink_to(_ROOT)
    kept = folder / "wheels"
    kept.mkdir()
    for wheel in wheels:
        shutil.copy2(wheel, kept)
    links = filter(None, [os.environ.get("PIP_FIND_LINKS"), kept.as_uri()])
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(folder / "environment" / "bin"), os.environ["PATH"]]),
        "PIP_FIND_LINKS": " ".join(links),
        "NO_COLOR": "1",
        "COLUMNS": "160",
    }


def _main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run a walk from nothing; print each time.")
    parser.add_argument("walk")
    parser.add_argument("wheels", nargs="+", help="of our own packages")
    options = parser.parse_args(arguments)
    commands = steps(PAGE.read_text(encoding="utf-8"), options.walk, slow=True)
    if not commands:
        print(f"{options.walk}: {PAGE.name} has no such walk")
        return 1
    total = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        walk = Walk(Path(scratch), _from_nothing(Path(scratch), options.wheels))
        for step in commands:
            outcome = walk.run(step)
            total += outcome.seconds
            print(f"{outcome.seconds:7.1f} s  {step.command}", flush=True)
            if not outcome.right:
                missing = (f"not printed: {line}" for line in outcome.missing)
                print(outcome.output, f"exit status {outcome.code}", *missing, sep="\n")
                return 1
        print(f"{total:7.1f} s  all of it\n{outcome.output}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
