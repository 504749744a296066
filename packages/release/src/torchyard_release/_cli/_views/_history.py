"""``torchyard release history``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from torchyard_release._cli._command import Answer, release_command
from torchyard_release._errors import ReleaseError
from torchyard_release._records._journal import Entry
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class _Run:
    """One command: the line that began it, the one that ended it, and those between."""

    began: Entry
    ended: Entry | None
    steps: tuple[Entry, ...]

    @property
    def outcome(self) -> str:
        """How it ended, in a word or a few."""
        if self.ended is None:
            return "killed, or still running"
        code = self.ended.data["rc"]
        return {0: "done", 3: "refused"}.get(code, f"failed ({code})")


@click.command()
@click.option("--version", metavar="X.Y.Z", help="Of this release instead of train.toml's.")
@click.option("--steps", is_flag=True, help="Show what each command recorded besides.")
@release_command
def history(workspace: Workspace, version: str | None, steps: bool) -> Answer:
    """Show what was run, by whom, and how it ended, out of the journal."""
    known = workspace.state.releases()
    chosen = version or workspace.train.release
    if version is not None and version not in known:
        raise ReleaseError(
            f"--version: expected one of {', '.join(known) or '(none)'}, got {version!r}",
            "name a release of which a journal is kept",
        )
    entries = workspace.state.release(chosen).entries()
    runs = _runs(entries)
    return Answer(
        {"version": chosen, "runs": [_as_data(run) for run in runs]},
        lambda out: _show(out, chosen, runs, steps),
    )


def _runs(entries: tuple[Entry, ...]) -> list[_Run]:
    runs: list[_Run] = []
    for entry in entries:
        if entry.kind == "command":
            runs.append(_Run(entry, None, ()))
        elif runs and entry.kind == "ended":
            runs[-1] = _Run(runs[-1].began, entry, runs[-1].steps)
        elif runs:
            runs[-1] = _Run(runs[-1].began, runs[-1].ended, (*runs[-1].steps, entry))
    return runs


def _as_data(run: _Run) -> dict[str, object]:
    return {
        "when": run.began.when,
        "actor": run.began.actor,
        "argv": run.began.data["argv"],
        "commit": run.began.data["commit"],
        "outcome": run.outcome,
        "seconds": run.ended.data["seconds"] if run.ended else None,
        "said": run.ended.data["said"] if run.ended else "",
        "steps": [{"seq": e.seq, "kind": e.kind, "data": dict(e.data)} for e in run.steps],
    }


def _show(out: Console, version: str, runs: list[_Run], steps: bool) -> None:
    from rich.table import Table

    if not runs:
        out.print(f"{version}: nothing was run yet")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("when (UTC)", "seconds", "command", "outcome", "by"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("when (UTC)", "seconds"))
    for run in runs:
        seconds = f"{run.ended.data['seconds']:.1f}" if run.ended else ""
        words = f"torchyard release {shlex.join(run.began.data['argv'])}"
        when = run.began.when.replace("T", " ")[:19]
        table.add_row(when, seconds, words, run.outcome, run.began.actor)
        if run.ended is not None and run.ended.data["said"]:
            table.add_row("", "", f"  {run.ended.data['said']}", "", "")
        for entry in run.steps if steps else ():
            data = ", ".join(f"{key}={value}" for key, value in sorted(entry.data.items()))
            table.add_row("", "", f"  {entry.kind} {data}", "", "")
    out.print(table)
