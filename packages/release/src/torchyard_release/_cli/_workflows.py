"""``torchyard release workflows``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from torchyard_release._cli._command import DONE, Answer, release_command
from torchyard_release._copies._check import write_derived
from torchyard_release._copies._workflows import derive_workflows
from torchyard_release._declaration._train import FILE
from torchyard_release._errors import WorkspaceError
from torchyard_release._repository._workspace import Workspace
from torchyard_release._workflows._write import workflow_texts

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@release_command
def workflows(workspace: Workspace) -> Answer:
    """Write the workflows of GitHub Actions that follow from train.toml.

    Tests of every change, targets on machines of your own, and a release: built twice, attested,
    uploaded by trusted publishing to one index after the other, compared with what was built.
    """
    derived = derive_workflows(workspace.root, workspace.train)
    if not derived.seen:
        raise WorkspaceError(
            f"{FILE}: no [workflows]", "declare it: docs/release.md has the keys and an example"
        )
    written = write_derived(workspace.root, derived)
    paths = sorted(workflow_texts(workspace.train))
    data = {"workflows": paths, "written": list(written)}
    return Answer(data, lambda out: _show(out, paths, written), DONE)


def _show(out: Console, paths: list[str], written: tuple[str, ...]) -> None:
    for path in paths:
        state = "written" if path in written else "as declared"
        out.print(f"{path}: {state}", soft_wrap=True)
