"""``torchyard release plan``."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click

from torchyard_release._cli._command import Answer, release_command
from torchyard_release._copies._bump import departing
from torchyard_release._declaration._calendar import later
from torchyard_release._declaration._train import Train
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option(
    "--today",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="Show it as of this day instead.",
)
@click.option("--trains", type=click.IntRange(1, 12), default=3, help="How many departures.")
@release_command
def plan(workspace: Workspace, today: datetime.datetime | None, trains: int) -> Answer:
    """Show the calendar of this train and the next ones, what is due, and what departs."""
    train = workspace.train
    day = (today or datetime.datetime.now()).date()
    current = train.phase_on(day)
    rows: list[dict[str, Any]] = []
    for number, phase in enumerate(train.phases):
        begins = phase.begins(train.departs)
        ends = train.phases[number + 1 : number + 2]
        rows.append(
            {
                "phase": phase.name,
                "begins": begins.isoformat(),
                "in_days": (begins - day).days,
                "state": "now" if phase is current else "past" if begins <= day else "ahead",
                "what": phase.what,
                "picks": list(phase.picks),
                "until": ends[0].begins(train.departs).isoformat() if ends else None,
            }
        )
    data = {
        "version": train.release,
        "today": day.isoformat(),
        "phase": current.name if current else None,
        "phases": rows,
        "departs": departures(train, trains),
        "packages": list(departing(workspace.git, train)),
    }
    return Answer(data, lambda out: _show(out, data))


def departures(train: Train, count: int) -> list[str]:
    """Return the days on which this train and the next ones leave."""
    days = [train.departs]
    while len(days) < count:
        days.append(later(days[-1], train.months))
    return [day.isoformat() for day in days]


def _show(out: Console, data: dict[str, Any]) -> None:
    from rich.table import Table

    styles = {"now": "bold green", "past": "dim", "ahead": ""}
    table = Table(box=None, pad_edge=False)
    for heading in ("phase", "begins", "", "what"):
        table.add_column(heading, overflow="fold")
    for row in data["phases"]:
        days = row["in_days"]
        when = "today" if not days else f"in {days} days" if days > 0 else f"{-days} days ago"
        due = f"{row['what']}; picks: {', '.join(row['picks'])}" if row["picks"] else row["what"]
        table.add_row(row["phase"], row["begins"], when, due, style=styles[row["state"]])
    out.print(f"{data['version']}, as of {data['today']}")
    out.print(table)
    now = [row for row in data["phases"] if row["state"] == "now"]
    if now:
        until = f" until {now[0]['until']}" if now[0]["until"] else ""
        out.print(f"due now{until}: {now[0]['what']}", style="bold", soft_wrap=True)
    else:
        first = data["phases"][0]
        out.print(f"nothing is due before {first['begins']}", soft_wrap=True)
    out.print(f"departs: {', '.join(data['departs'])}", soft_wrap=True)
    out.print(f"takes along: {', '.join(data['packages'])}", soft_wrap=True)
