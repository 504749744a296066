"""``torchyard release audit``, ``bisect`` and ``index``."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchyard_release._audit._audit import (
    Observation,
    YankPlan,
    compare_files,
    compare_tags,
    install_again,
    yank_plan,
)
from torchyard_release._audit._bisect import Bisection, Tried
from torchyard_release._audit._bisect import bisect as search
from torchyard_release._cli._command import (
    DONE,
    REFUSED,
    Answer,
    console,
    operation,
    release_command,
)
from torchyard_release._cli._publish import open_index
from torchyard_release._errors import ReleaseError
from torchyard_release._gates._clean_room import CleanRoom
from torchyard_release._gates._verification import released_folders
from torchyard_release._index._server import IndexServer
from torchyard_release._publish._promote import promoted, signed_manifest
from torchyard_release._records._candidate import read_candidate
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._trust import judged

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option("--index", "name", default="release", show_default=True, help="Of train.toml.")
@click.option("--yank", metavar="PACKAGE==VERSION", help="Plan this yank instead.")
@release_command
def audit(workspace: Workspace, name: str, yank: str | None) -> Answer:
    """Compare the index with what was signed and tagged, and install every release from it again.

    Exit status 3 where something is not as it should be. Nothing is changed anywhere.
    """
    index = open_index(workspace, name)
    if yank is not None:
        project, _, version = yank.partition("==")
        packages = [package.name for package in workspace.packages]
        plan = yank_plan(index, packages, project, version)
        return Answer(asdict(plan), lambda out: _show_plan(out, plan))
    label = promoted(workspace)
    if not label:
        raise ReleaseError(
            f"{workspace.train.release}: nothing was promoted, so nothing can be audited",
            "audit after `torchyard release publish`",
        )
    with operation(workspace) as journal:
        number = int(label.removeprefix("rc"))
        manifest = signed_manifest(workspace, number)
        # The packages of the release, whatever the checkout has by now.
        workspace = judged(workspace, number).workspace
        packages = [package.name for package in workspace.packages]
        vouched = _vouched(workspace)
        versions = sorted({version for found in vouched.values() for version in found[-1:]})
        found = [
            *compare_files(index, manifest.files, packages, versions),
            *compare_tags(index, vouched, workspace.git.tags("v*")),
        ]
        with tempfile.TemporaryDirectory(prefix="train-audit-") as scratch:
            found += install_again(
                Path(scratch),
                index.simple,
                _releases(workspace),
                base=_base(workspace, Path(scratch)),
            )
        wrong = [item for item in found if not item.fine]
        journal.append("audit", index=name, observed=len(found), wrong=[i.about for i in wrong])
        journal.code = REFUSED if wrong else DONE
    return Answer(
        [asdict(item) for item in found],
        lambda out: _show_audit(out, found),
        journal.code,
    )


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--good", required=True, help="A revision on which the command ends with 0.")
@click.option("--bad", default="HEAD", show_default=True, help="A later one, on which it fails.")
@click.option("--build", default="", help="What comes first; where it fails, skip the commit.")
@click.option("--retries", default=2, show_default=True, help="How often a failure is tried again.")
@click.argument("oracle", nargs=-1, required=True, type=click.UNPROCESSED)
@release_command
def bisect(
    workspace: Workspace, good: str, bad: str, build: str, retries: int, oracle: tuple[str, ...]
) -> Answer:
    """Find the first commit on which a command fails, such as: -- nox -s "tests(core)".

    It runs in a work tree of its own; the checkout stays as it is.
    """
    import shlex

    log = console(stderr=True)

    def say(tried: Tried) -> None:
        log.print(f"{tried.sha[:12]} {tried.judgement}: {tried.text}")

    with operation(workspace) as journal:

        def step(tried: Tried) -> None:
            say(tried)
            journal.append("bisect", commit=tried.sha, judgement=tried.judgement, text=tried.text)

        found = search(
            workspace.git,
            good,
            bad,
            oracle,
            build=shlex.split(build),
            retries=retries,
            say=step,
        )
    return Answer(asdict(found), lambda out: _show_bisection(out, workspace, found))


@click.group()
def index() -> None:
    """A package index in a folder, for rehearsals."""


@index.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--port", type=int, default=0, help="Default: a free one, which is printed.")
def serve(folder: Path, port: int) -> None:
    """Serve FOLDER on the loopback, uploads included, until interrupted.

    It asks nobody who they are; it is for rehearsals and tests.
    """
    with IndexServer(folder, port=port) as server:
        click.echo(f"simple {server.simple}\nlegacy {server.legacy}")
        server.wait()


def _vouched(workspace: Workspace) -> dict[str, list[str]]:
    """Return distribution -> the versions that were promoted here, oldest first."""
    found: dict[str, list[str]] = {package.name: [] for package in workspace.packages}
    for folder in released_folders(workspace):
        for item in read_candidate(folder).artifacts:
            versions = found.setdefault(item.package, [])
            if item.version not in versions:
                versions.append(item.version)
    return found


def _releases(workspace: Workspace) -> list[str]:
    """Return what installs each release that was promoted here: all of its packages at once."""
    found = []
    for folder in released_folders(workspace):
        items = read_candidate(folder).artifacts
        pins = {f"{item.package}=={item.version}" for item in items if item.kind == "wheel"}
        found.append(" ".join(sorted(pins)))
    return found


def _base(workspace: Workspace, scratch: Path) -> CleanRoom | None:
    oldest = workspace.train.torch[0]
    if not oldest or not any(package.torch for package in workspace.packages):
        return None
    room = CleanRoom(scratch / "torch").make()
    room.install(f"torch=={oldest}")
    return room


def _show_audit(out: Console, found: list[Observation]) -> None:
    wrong = [item for item in found if not item.fine]
    for item in wrong:
        out.print(f"{item.about}: {item.text}", soft_wrap=True)
    out.print(f"{len(found)} things looked at, {len(wrong)} not as they should be")


def _show_plan(out: Console, plan: YankPlan) -> None:
    for number, step in enumerate(plan.steps(), 1):
        out.print(f"{number}. {step}", soft_wrap=True)


def _show_bisection(out: Console, workspace: Workspace, found: Bisection) -> None:
    for sha in found.culprits:
        out.print(workspace.git.run("show", "--no-patch", "--format=%h %an %ad %s", sha))
    if len(found.culprits) > 1:
        out.print("one of these: the commits between them could not be judged")
