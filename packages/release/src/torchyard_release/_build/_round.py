"""One round of building: every package, from an export, with its own environment and clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchyard_release._build._cross import cross_build
from torchyard_release._build._steps import Steps
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._platform import platform_of

# Versions that isolated builds are held to, where a repository has it.
CONSTRAINTS: Final = "constraints.txt"

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
    scratch: Path | None = None,
) -> tuple[Path, ...]:
    """Build a package's sdist, and every wheel out of that sdist; return the files.

    Args:
        source: the export.
        package: what to build.
        out: an empty folder for the artifacts.
        log: the file for what the builders say.
        conditions: of this round.
        epoch: when the commit was made: the time that every file in an artifact has.
        isolated: whether builders are installed into an environment of their own, as users' are.
        settings: words for the builder, such as ``build-dir=...``.
        scratch: a folder for wheels of other platforms and their compiler's caches; beside the
            source without one.

    Raises:
        BuildError: it failed; the message has the end of its log.
    """
    out.mkdir(parents=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
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
    builder = ["build", *([] if isolated else ["--no-isolation"])]
    builder += [f"--config-setting={setting}" for setting in settings]
    steps = Steps(source, package.name, log, conditions.umask, changes)
    platforms = [platform_of(tag) for tag in package.wheels]
    folder = str(source / package.folder)
    if None in platforms:
        steps.run(*builder, "--outdir", str(out), folder)
    else:
        steps.run(*builder, "--sdist", "--outdir", str(out), folder)
    for platform in platforms:
        if platform is not None:
            sdist = next(out.glob("*.tar.gz"))
            cross_build(steps, builder, platform, sdist, scratch or source.with_name("cross"), out)
    found = tuple(sorted(out.iterdir()))
    if not found:
        steps.fail("left no file")
    return found
