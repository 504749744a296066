"""``torchyard release wheels``."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from torchyard_release._artifacts._promises import judge_promises, needed_glibc
from torchyard_release._build._round import ROUNDS, build_package
from torchyard_release._cli._command import DONE, REFUSED, Answer, console, release_command
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._platform import platform_of
from torchyard_release._errors import ReleaseError
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

_HEADINGS: Final = ("wheel", "bytes", "seconds", "needs", "verdict")


@click.command()
@click.argument("packages", nargs=-1, metavar="[PACKAGE]...")
@click.option(
    "--platform",
    "platforms",
    default="*",
    metavar="PATTERN",
    show_default=True,
    help="Platforms that are built, such as manylinux_* or win_amd64.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist"),
    show_default=True,
    help="The folder for the files.",
)
@click.option("--no-isolation", is_flag=True, help="Build with what is installed here.")
@release_command
def wheels(
    workspace: Workspace, packages: tuple[str, ...], platforms: str, out: Path, no_isolation: bool
) -> Answer:
    """Build the wheels of packages from this checkout, for every platform that has one.

    Without a name: of every package with wheels of single platforms. Each wheel is held against its
    tag by auditwheel and abi3audit. Nothing is recorded, and no candidate is made: that is
    `torchyard release build`. Exit status 3: a wheel needs what its tag does not promise.
    """
    rows = []
    for package in _chosen(workspace, packages, platforms):
        for tag in package.wheels:
            rows.append(_built(workspace, package, tag, out, isolated=not no_isolation))
    code = REFUSED if any(row["findings"] for row in rows) else DONE
    return Answer(rows, lambda out: _show(out, rows), code)


def _chosen(workspace: Workspace, names: Sequence[str], platforms: str) -> list[Package]:
    """Return packages with the wheels that are asked for."""
    known = {package.name: package for package in workspace.packages}
    for name in names:
        if name not in known:
            raise ReleaseError(
                f"expected packages of the train, got {name!r}", f"name some of {', '.join(known)}"
            )
    found = []
    for package in known.values() if not names else [known[name] for name in names]:
        tags = tuple(
            tag
            for tag in package.wheels
            if fnmatchcase(tag.rpartition("-")[2], platforms) and (names or platform_of(tag))
        )
        if tags:
            found.append(dataclasses.replace(package, wheels=tags))
    if not found:
        raise ReleaseError(
            f"no package that was asked for has a wheel for {platforms!r}",
            "declare it: `wheels` in train.toml; or give another --platform",
        )
    return found


def _built(
    workspace: Workspace, package: Package, tag: str, out: Path, *, isolated: bool
) -> dict[str, Any]:
    """Build one wheel, and return what there is to say of it."""
    began = time.monotonic()
    epoch = workspace.git.time("HEAD")
    with tempfile.TemporaryDirectory(prefix="train-wheels-") as name:
        folder = Path(name)
        with console(stderr=True).status(f"building {package.name} for {tag}"):
            files = build_package(
                workspace.root,
                dataclasses.replace(package, wheels=(tag,)),
                folder / "out",
                folder / "log.txt",
                ROUNDS[0],
                epoch,
                isolated=isolated,
                scratch=folder / "cross",
            )
        (wheel,) = (path for path in files if path.suffix == ".whl")
        out.mkdir(parents=True, exist_ok=True)
        place = out / wheel.name
        place.write_bytes(wheel.read_bytes())
    platform = platform_of(tag)
    return {
        "file": place.name,
        "bytes": place.stat().st_size,
        "seconds": round(time.monotonic() - began, 1),
        "needs": needed_glibc(place) if platform is not None and platform.glibc else "",
        "findings": [finding.line for finding in judge_promises(place)],
    }


def _show(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(*_HEADINGS, box=None, pad_edge=False)
    for row in rows:
        verdict = "as its tag promises" if not row["findings"] else "needs more than its tag says"
        table.add_row(
            row["file"], str(row["bytes"]), str(row["seconds"]), row["needs"] or "-", verdict
        )
    out.print(table)
    for row in rows:
        for line in row["findings"]:
            out.print(line, style="red", soft_wrap=True)
