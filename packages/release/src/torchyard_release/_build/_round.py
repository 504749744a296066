"""One round of building: every package, from an export, with its own environment and clock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchyard import child_environ
from torchyard_release._errors import ReleaseError
from torchyard_release._declaration._package import Package

# Versions that isolated builds are held to, where a repository has it.
CONSTRAINTS: Final = "constraints.txt"
# Of the log of a build that failed, in the message.
_LINES: Final = 15


class BuildError(ReleaseError):
    """A package could not be built."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What may differ between two machines without one byte of an artifact differing.

    Attributes:
        name: of the round.
        depth: names of folders that the export lies in.
        umask: of the processes.
        zone: the time zone.
        age: how much older than the commit the files are made to look, in seconds.
        seed: of Python's hashes.
    """

    name: str
    depth: str
    umask: int
    zone: str
    age: int
    seed: int


ROUNDS: Final = (
    Conditions("first", "a", 0o022, "UTC", 0, 1),
    Conditions("second", "a-much/longer/way", 0o077, "Pacific/Kiritimati", 40_000_000, 2),
)


def age_files(folder: Path, conditions: Conditions, epoch: int) -> None:
    """Give every file of an export the mode and the time that a round's conditions ask for."""
    for path in folder.rglob("*"):
        mode = path.stat().st_mode
        if path.is_symlink():
            continue
        path.chmod(mode & ~conditions.umask)
        os.utime(path, (epoch - conditions.age, epoch - conditions.age))


def build_package(
    source: Path,
    package: Package,
    out: Path,
    log: Path,
    conditions: Conditions,
    epoch: int,
    *,
    isolated: bool,
    settings: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Build a package's sdist, and the wheel out of that sdist; return the files.

    Args:
        source: the export.
        package: what to build.
        out: an empty folder for the artifacts.
        log: the file for what the builders say.
        conditions: of this round.
        epoch: when the commit was made: the time that every file in an artifact has.
        isolated: whether builders are installed into an environment of their own, as users' are.
        settings: words for the builder, such as ``build-dir=...``.

    Raises:
        BuildError: it failed; the message has the end of its log.
    """
    out.mkdir(parents=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    changes: dict[str, str | None] = {
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHONHASHSEED": str(conditions.seed),
        "TZ": conditions.zone,
        "PYTHONPATH": None,
        "NO_COLOR": "1",
        "FORCE_COLOR": None,
    }
    if (source / CONSTRAINTS).is_file():
        # As a URI, because pip splits these variables at blanks.
        pins = (source / CONSTRAINTS).as_uri()
        changes |= {"PIP_CONSTRAINT": pins, "PIP_BUILD_CONSTRAINT": pins}
    words = [sys.executable, "-m", "build", "--outdir", str(out), str(source / package.folder)]
    words += [] if isolated else ["--no-isolation"]
    words += [f"--config-setting={setting}" for setting in settings]
    with log.open("wb") as file:
        code = subprocess.run(
            words,
            cwd=source,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=child_environ(changes),
            umask=conditions.umask,
        ).returncode
    found = tuple(sorted(out.iterdir()))
    if code or not found:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-_LINES:])
        raise BuildError(
            f"{package.name}: building it ended with {code}:\n{end}",
            f"the whole log is {log}; fix it on the branch, then "
            f"`torchyard release cut --candidate`",
        )
    return found
