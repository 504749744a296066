"""``torchyard release scorecard``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from torchyard_release._atomic import write_atomically, write_json_atomically
from torchyard_release._cli._command import DONE, REFUSED, Answer, release_command
from torchyard_release._gates._following import following
from torchyard_release._gates._judgement import scorecard_of
from torchyard_release._gates._scorecard import Scorecard, Status
from torchyard_release._gates._scorecard_page import scorecard_page
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: Final = {
    Status.PASS: "green",
    Status.FAIL: "bold red",
    Status.UNVERIFIED: "yellow",
    Status.WAIVED: "magenta",
}


@click.command()
@click.option("--candidate", type=click.IntRange(min=1), help="Its number; default the newest.")
@release_command
def scorecard(workspace: Workspace, candidate: int | None) -> Answer:
    """Show a candidate's checks; exit status 3 while it may not be released.

    Writes scorecard.html and scorecard.json into the candidate's folder as well.
    """
    number = candidate or workspace.release.latest()[0]
    card = scorecard_of(workspace, number)
    # What follows an earlier candidate is the newest one.
    newest = workspace.release.candidates()[-1]
    following_ = following(workspace, card, number) if number == newest else "scorecard"
    data = card.to_json() | {"next": f"torchyard release {following_}"}
    folder = workspace.release.candidate(number)
    write_json_atomically(folder / "scorecard.json", data)
    page = folder / "scorecard.html"
    write_atomically(page, scorecard_page(card, data["next"]).encode())
    code = DONE if card.ready else REFUSED
    return Answer(data, lambda out: _show(out, card, page, data["next"]), code)


def _show(out: Console, card: Scorecard, page: Path, command: str) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("gate", "cell", "status", "what the evidence shows"):
        table.add_column(heading, overflow="fold")
    for row in card.rows:
        level = "" if row.blocking else " (informing)"
        status = f"{row.status}{', stale' if row.stale else ''}"
        from rich.text import Text

        table.add_row(f"{row.gate}{level}", row.cell, Text(status, _STYLES[row.status]), row.text)
    out.print(table)
    for note in card.notes:
        out.print(f"note: {note}")
    for line in card.damage:
        out.print(f"damaged: {line}", style="bold red", soft_wrap=True)
    counts = ", ".join(f"{number} {status}" for status, number in card.counts().items())
    verdict = "ready" if card.ready else "not ready"
    out.print(f"{card.project} {card.version} {card.candidate}: {verdict}: {counts}")
    out.print(f"page: {page}", soft_wrap=True)
    if command.endswith(" scorecard"):
        out.print("next: what is red above says what to do; no command does it")
    else:
        out.print(f"next: `{command}`")
