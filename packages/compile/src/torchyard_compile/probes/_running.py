"""``probe``: run the programs, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Final

from torchyard import arguments, child_environ

__all__ = ["Outcome", "Probed", "differences", "probe", "programs"]

_SECONDS: Final = 180.0
_SLOW: Final = "slow: "


class Outcome(StrEnum):
    """What became of a promise."""

    WORKS = "works"
    WRONG = "wrong"
    REFUSES = "refuses"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of a program.

    Attributes:
        name: the program's.
        claim: what it tries, in a sentence.
        outcome: what came of it.
        text: why it is not ``works``; empty where it is.
        seconds: that it took, importing torch among them.
    """

    name: str
    claim: str
    outcome: Outcome
    text: str
    seconds: float


def programs() -> dict[str, Path]:
    """Return the programs by name; each is a file of Python that a user can run and send.

    They name private parts of torch, as a report of a fault does, and are no modules of this
    package.
    """
    folder = resources.files("torchyard_compile").joinpath("probes", "_programs")
    found = sorted(item.name for item in folder.iterdir() if item.name.endswith(".txt"))
    return {Path(name).stem: Path(str(folder.joinpath(name))) for name in found}


def probe(
    names: Sequence[str] | None = None,
    *,
    paths: Mapping[str, Path] | None = None,
    done: Callable[[Probed], object] = lambda probed: None,
) -> tuple[Probed, ...]:
    """Run programs on the installed torch, one after the other.

    Args:
        names: of programs; None: all.
        paths: name -> file; None: those of this package.
        done: called with each outcome.

    Raises:
        TypeError, ValueError: an argument does not fit.
    """
    known = programs() if paths is None else dict(arguments.mapping("probe", "paths", paths))
    given = sorted(known) if names is None else arguments.sequence("probe", "names", names)
    arguments.function("probe", "done", done)
    found = []
    for name in [arguments.choice("probe", "names", name, known) for name in given]:
        found.append(_run(name, known[name]))
        done(found[-1])
    return tuple(found)


def _run(name: str, path: Path) -> Probed:
    text = path.read_text(encoding="utf-8")
    claim = text.removeprefix('"""').partition('"""')[0].strip()
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(path)],
            env=child_environ({}),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probed(name, claim, Outcome.SLOW, f"no end in {_SECONDS:g} s", _SECONDS)
    seconds = time.perf_counter() - begun
    if done.returncode == 0:
        return Probed(name, claim, Outcome.WORKS, "", seconds)
    outcome, why = _judged(done.stderr.strip().splitlines())
    return Probed(name, claim, outcome, why, seconds)


def _judged(lines: list[str]) -> tuple[Outcome, str]:
    """Return an outcome by what a program printed last."""
    for line in lines:
        if line.startswith(_SLOW):
            return Outcome.SLOW, line.removeprefix(_SLOW)
    errors = [line for line in lines if _is_error(line)]
    # The last error is the one that ended it; what follows it are its further lines.
    last = errors[-1] if errors else (lines[-1] if lines else "it ended without a word")
    return (Outcome.WRONG if last.startswith("AssertionError") else Outcome.REFUSES), last


def _is_error(line: str) -> bool:
    head = line.partition(":")[0]
    ends = ("Error", "Exception", "Unsupported", "Failed")
    return bool(head) and not head[0].isspace() and head.split(".")[-1].endswith(ends)


def differences(before: Iterable[Probed], after: Iterable[Probed]) -> list[str]:
    """Return a line for each program of which another torch made something else."""
    old = {item.name: item for item in before}
    return [
        f"{item.name}: {old[item.name].outcome} -> {item.outcome}"
        + (f": {item.text}" if item.text else "")
        for item in after
        if item.name in old and old[item.name].outcome is not item.outcome
    ]
