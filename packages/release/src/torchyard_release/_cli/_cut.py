"""``torchyard release cut``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from torchyard_release._cli._command import Answer, group_of, operation, release_command
from torchyard_release._cut._cut import Cut, cut_branch, cut_candidate
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option("--candidate", is_flag=True, help="Tag the branch's tip as its next candidate.")
@release_command
def cut(workspace: Workspace, candidate: bool) -> Answer:
    """Cut release/X.Y from main with the versions of the release, and tag its first candidate.

    The checkout is left as it is, and nothing is pushed. The commit that is cut holds the released
    version everywhere, the changes' fragments are checked, and branch and tag come into being
    together or not at all.
    """
    with operation(workspace) as journal:
        done = (cut_candidate if candidate else cut_branch)(workspace, journal, group_of())
    return Answer(asdict(done), lambda out: _show(out, done, workspace.train.remote))


def _show(out: Console, done: Cut, remote: str) -> None:
    out.print(f"{done.branch} and {done.tag} are at {done.commit[:12]}", style="green")
    out.print(f"{done.fragments} fragments of changes are in order")
    out.print(f"next: `git push {remote} {done.branch} {done.tag}`, then `torchyard release build`")
