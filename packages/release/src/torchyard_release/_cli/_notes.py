"""``torchyard release notes``."""

from __future__ import annotations

from pathlib import Path

import click

from torchyard_release._atomic import write_atomically
from torchyard_release._cli._command import Answer, release_command
from torchyard_release._gates._judgement import scorecard_of
from torchyard_release._publish._notes import notes_of
from torchyard_release._repository._workspace import Workspace


@click.command()
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="the release's folder of the state",
    help="Where NOTES.md and BLOG.md are written.",
)
@release_command
def notes(workspace: Workspace, output: Path | None) -> Answer:
    """Write release notes and a blog post, out of fragments, features, git and the scorecard.

    All of them are the newest candidate's; before there is one, the checkout's.
    """
    numbers = workspace.release.candidates()
    card = scorecard_of(workspace, numbers[-1]) if numbers else None
    if card is None:
        told = notes_of(workspace, None)
    else:
        # Main goes on meanwhile: what it has since the cut is the next release's.
        with workspace.at(card.commit) as tree:
            told = notes_of(tree, card, revision=card.commit)
    folder = output or workspace.release.folder
    files = {"NOTES.md": told.release_notes(), "BLOG.md": told.blog()}
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    written = [str(folder / name) for name in files]
    data = {
        "files": written,
        "commits": len(told.since.commits),
        "contributors": len(told.since.contributors),
        "shipped_before": len(told.since.shipped),
        "bots": [person.name for person in told.since.bots],
        "sentence": told.since.sentence(),
    }
    return Answer(
        data,
        lambda out: out.print("\n".join([told.since.sentence(), *written]), soft_wrap=True),
    )
