"""``torchyard release pick``."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from torchyard_release._cli._command import DONE, REFUSED, Answer, operation, release_command
from torchyard_release._cut._pick import Missing, Pick, ledger, missing
from torchyard_release._cut._pick import pick as pick_commit
from torchyard_release._errors import ReleaseError
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("commits", nargs=-1)
@click.option("--as", "criterion", help="Why: one of the phase's picks in train.toml.")
@click.option("--dispensation", default="", help="NAME: REASON, where the phase would not take it.")
@click.option("--decline", "declined", multiple=True, help="Leave a missing revert or fix out.")
@click.option("--reason", default="", help="Why it is declined.")
@release_command
def pick(
    workspace: Workspace,
    commits: tuple[str, ...],
    criterion: str | None,
    dispensation: str,
    declined: tuple[str, ...],
    reason: str,
) -> Answer:
    """Bring commits of main onto the release's branch, or show the ledger and what is missing.

    Without COMMITS it shows; exit status 3 while a revert or a fix of something that the branch
    has is missing.
    """
    if commits and not criterion:
        raise ReleaseError("--as: expected why these may be picked, got nothing", "say --as WHY")
    if declined and not reason:
        raise ReleaseError("--reason: expected why it is declined, got nothing", "say --reason WHY")
    if commits or declined:
        today = datetime.datetime.now(datetime.UTC).date()
        with operation(workspace) as journal:
            for name in declined:
                sha = workspace.git.commit(name)
                journal.append("pick.declined", commit=sha, reason=reason)
            for name in commits:
                made = pick_commit(
                    workspace, name, str(criterion), today=today, dispensation=dispensation
                )
                journal.append("pick", commit=made.origin, made=made.sha, criterion=criterion)
    entries = ledger(workspace)
    decided = [e.data["commit"] for e in workspace.release.entries() if e.kind == "pick.declined"]
    lacking = missing(workspace, decided)
    data = {
        "picks": [asdict(item) for item in entries],
        "missing": [asdict(item) for item in lacking],
        "declined": decided,
    }
    red = lacking and not (commits or declined)
    return Answer(data, lambda out: _show(out, entries, lacking), REFUSED if red else DONE)


def _show(out: Console, entries: tuple[Pick, ...], lacking: tuple[Missing, ...]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("commit", "from", "why", "same patch", "first in", "subject"):
        table.add_column(heading, overflow="fold")
    same = {True: "yes", False: "no: resolved by hand", None: ""}
    for item in entries:
        why = f"{item.criterion} ({item.dispensation})" if item.dispensation else item.criterion
        table.add_row(
            *(item.sha[:12], item.origin[:12] or "the branch", why, same[item.same_patch]),
            *(item.candidate or "the next", item.subject),
        )
    out.print(table if entries else "nothing was picked yet")
    for lack in lacking:
        out.print(
            f"missing {lack.kind}: {lack.sha[:12]} {lack.subject}: of {lack.target[:12]}; "
            f"{lack.proof}"
        )
    if lacking:
        out.print("pick each, or: `torchyard release pick --decline COMMIT --reason WHY`")
    if any(not item.candidate for item in entries):
        out.print("next: `torchyard release cut --candidate`, then `torchyard release build`")
