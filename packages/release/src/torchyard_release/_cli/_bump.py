"""``torchyard release bump``."""

from __future__ import annotations

import click

from torchyard_release._cli._command import Answer, group_of, operation, release_command
from torchyard_release._copies._bump import bump_tree
from torchyard_release._repository._workspace import Workspace


@click.command()
@click.argument("version", metavar="X.Y.Z[.devN]")
@release_command
def bump(workspace: Workspace, version: str) -> Answer:
    """Write another version into train.toml, and derive every copy of it.

    Nothing is committed. In a patch X.Y.Z, packages without changes since X.Y.(Z-1) keep theirs.
    """
    workspace.git.require_clean()
    with operation(workspace) as journal:
        written = bump_tree(workspace.root, workspace.git, version, group_of())
        journal.append("bumped", version=version, files=list(written))
    return Answer(
        {"version": version, "written": list(written)},
        lambda out: out.print(
            f"{version}: wrote {len(written)} files; `git diff` shows them, "
            f'`git commit -am "Open {version}"` keeps them',
            soft_wrap=True,
        ),
    )
