"""``torchyard release check``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from torchyard_release._cli._command import DONE, REFUSED, Answer, group_of, release_command
from torchyard_release._copies._check import derive, write_derived
from torchyard_release._copies._drift import Derived
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option("--write", is_flag=True, help="Rewrite what can be derived.")
@click.option("--no-nox", is_flag=True, help="Do not ask nox for its sessions.")
@release_command
def check(workspace: Workspace, write: bool, no_nox: bool) -> Answer:
    """Find every second copy of what train.toml declares that differs from it.

    Compared are versions, the pins of siblings and of torch, nox's sessions, derived blocks and
    tables in pages, versions that pages say to install, and the commands of the runbook.
    """

    def look() -> Derived:
        files = workspace.git.files()
        return derive(workspace.root, workspace.train, files, group_of(), nox=not no_nox)

    derived = look()
    written = write_derived(workspace.root, derived) if write else ()
    if written:
        derived = look()
    data = {
        "compared": derived.seen,
        "drifts": [asdict(drift) for drift in derived.drifts],
        "written": list(written),
    }
    code = REFUSED if derived.drifts else DONE
    return Answer(data, lambda out: _show(out, derived, written), code)


def _show(out: Console, derived: Derived, written: tuple[str, ...]) -> None:
    for path in written:
        out.print(f"rewritten: {path}", soft_wrap=True)
    for drift in derived.drifts:
        out.print(drift.text, style="red", soft_wrap=True)
    agree = f"{derived.seen} copies compared"
    if derived.drifts:
        out.print(f"{agree}, {len(derived.drifts)} differ", style="bold red")
    else:
        out.print(f"{agree}: all say what train.toml does", style="green")
