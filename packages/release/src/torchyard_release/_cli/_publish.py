"""``torchyard release publish``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from pypi_simple import PYPI_SIMPLE_ENDPOINT

from torchyard_release._cli._command import (
    DONE,
    FAILED,
    Answer,
    console,
    operation,
    release_command,
)
from torchyard_release._errors import ReleaseError
from torchyard_release._gates._verification import departing
from torchyard_release._index._upload import Index
from torchyard_release._publish._promote import promoted, signed_manifest
from torchyard_release._publish._publish import Fate, Parcel, Publication, Step
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._manifest import Manifest
from torchyard_release._signing._trust import committed_index, judged

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option("--index", "name", default="release", show_default=True, help="Of train.toml.")
@click.option("--for-real", is_flag=True, help="Upload; without it nothing is written anywhere.")
@release_command
def publish(workspace: Workspace, name: str, for_real: bool) -> Answer:
    """Upload the promoted candidate's files, each once, from where it stopped.

    Exit status 1 where a file did not get there; run the same command again.
    """
    number = _promoted(workspace)
    index = open_index(workspace, name)
    manifest = signed_manifest(workspace, number)
    folder = workspace.release.candidate(number) / "dist"
    parcels = parcels_of(workspace, manifest)
    if not for_real:
        fates = Publication(folder, parcels, index, _Nothing()).plan()
        return Answer(_data(name, fates, dry=True), lambda out: _show(out, name, fates, dry=True))
    log = console(stderr=True)
    with operation(workspace) as journal:
        journal.append("publish", index=name, candidate=f"rc{number}")
        say = lambda fate: log.print(f"{fate.file}: {fate.step} {fate.reason}".rstrip())  # noqa: E731
        fates = Publication(folder, parcels, index, journal, say=say).run()
        short = [fate for fate in fates if fate.step in {Step.BLOCKED, Step.FAILED}]
        if not short:
            journal.append("published", index=name, candidate=f"rc{number}", files=len(fates))
        journal.code = FAILED if short else DONE
    return Answer(
        _data(name, fates, dry=False),
        lambda out: _show(out, name, fates, dry=False),
        journal.code,
    )


def open_index(workspace: Workspace, name: str) -> Index:
    """Return an index of the train.toml that is committed and checked out."""
    found = committed_index(workspace, name)
    # Without an address it is the one that installers use when nobody told them another.
    return Index(found.repository, found.simple or PYPI_SIMPLE_ENDPOINT)


def parcels_of(workspace: Workspace, manifest: Manifest) -> tuple[Parcel, ...]:
    """Return each package with its files, after those that it requires."""
    found = judged(workspace, int(manifest.candidate.removeprefix("rc")))
    owner = {item.file: item.package for item in found.candidate.artifacts}
    return tuple(
        Parcel(
            name,
            found.train.package(name).requires,
            {file: sha for file, sha in manifest.files.items() if owner[file] == name},
        )
        for name in departing(found.workspace, found.candidate)
    )


def _promoted(workspace: Workspace) -> int:
    label = promoted(workspace)
    if not label:
        raise ReleaseError(
            f"{workspace.train.release}: no candidate is the release yet",
            "approve one and `torchyard release promote` it; publishing builds nothing",
        )
    return int(label.removeprefix("rc"))


class _Nothing:
    """The journal of a dry run."""

    def append(self, kind: str, /, **data: Any) -> object:
        """Write nothing."""
        return None


def _data(name: str, fates: tuple[Fate, ...], *, dry: bool) -> dict[str, object]:
    rows = [
        {"file": f.file, "package": f.package, "step": f.step, "reason": f.reason} for f in fates
    ]
    return {"index": name, "dry_run": dry, "files": rows}


def _show(out: Console, name: str, fates: tuple[Fate, ...], *, dry: bool) -> None:
    for fate in fates if dry else ():
        out.print(f"{fate.file}: {fate.step}", soft_wrap=True)
    counts = ", ".join(
        f"{sum(fate.step is step for fate in fates)} {step}"
        for step in Step
        if any(fate.step is step for fate in fates)
    )
    out.print(f"{name}: {counts}")
    if dry:
        out.print("this was a dry run; with --for-real it is done")
    elif any(fate.step in {Step.BLOCKED, Step.FAILED} for fate in fates):
        out.print("run the same command again: what is there is left alone")
    else:
        out.print("next: `torchyard release audit`")
