"""The command ``torchyard flight``."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from torchyard_collectives.flight._analysis.findings import Outcome, Report
from torchyard_collectives.flight._analysis.verdict import analyse
from torchyard_collectives.flight._dump.folder import Box
from torchyard_collectives.flight._dump.read import RESTART, Dumps, dump_name, read_folder, restarts
from torchyard_collectives.flight._errors import FlightDumpError
from torchyard_collectives.flight._report.timeline import render_html

__all__ = ["command"]

_STATUS: Final = {Outcome.HEALTHY: 0, Outcome.FAULT: 1, Outcome.INCONCLUSIVE: 3}
_FOLDER: Final = Path("torchyard-flight")


@click.group("flight")
def command() -> None:
    """Say what collectives wait for, from the ranks' flight recorders."""


@command.command("analyze")
@click.argument("folder", type=click.Path(path_type=Path), default=_FOLDER)
@click.option("--live", is_flag=True, help="Have the job that watches the folder dump first.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="With --live: seconds to wait for the dumps.",
)
@click.option("--html", type=click.Path(path_type=Path), help="Write a timeline to this file.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Seconds that a rank may wait in a call before that is a fault.",
)
@click.option(
    "--straggler",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds that a rank may come after the others.",
)
@click.option("--world-size", type=click.IntRange(min=1), help="Of the job, where no dump has it.")
@click.option(
    "--restart",
    type=click.IntRange(0),
    help="Read the dumps of this restart of the job, 0 its first start; the last by default.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Write one JSON document to stdout, nothing else."
)
def analyze(
    folder: Path,
    live: bool,
    wait: float,
    html: Path | None,
    patience: float,
    straggler: float,
    world_size: int | None,
    restart: int | None,
    as_json: bool,
) -> None:
    """Name the fault in a FOLDER of dumps, ours or torch's.

    Exit status 0: nothing is wrong; 1: a fault was found; 2: nothing could be read; 3: nothing is
    seen to be wrong, and dumps are missing or damaged.
    """
    known = restarts(folder)
    chosen = max(known, default=0) if restart is None else restart
    if chosen:
        folder = folder / RESTART.format(count=chosen)
    late = _ask(folder, wait) if live else ()
    dumps = read_folder(folder)
    if len(known) > 1 and not as_json:
        click.echo(
            f"dumps of restart {chosen}; --restart chooses among {', '.join(map(str, known))}"
        )
    report = analyse(
        list(dumps.histories.values()),
        world_size=world_size or dumps.world_size,
        gone=dumps.gone,
        problems=(*dumps.problems, *late),
        damaged=dumps.damaged,
        patience=patience,
        straggler=straggler,
    )
    if html is not None:
        try:
            html.write_text(render_html(report), encoding="utf-8")
        except OSError as error:
            raise FlightDumpError(f"{html}: cannot be written: {error.strerror}") from error
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2, sort_keys=True, ensure_ascii=False))
    else:
        _write(report)
    sys.exit(_STATUS[report.outcome])


def _ask(folder: Path, wait: float) -> Sequence[str]:
    """Ask a running job for dumps; return what did not come."""
    if not folder.is_dir():
        raise FlightDumpError(
            f"{folder}: expected the folder that a running job dumps to, got none"
        )
    began = time.time_ns()
    Box(folder).ask()
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        fresh = _fresh(folder, began)
        known = max((history.world_size for history in fresh.histories.values()), default=0)
        if known and len(fresh.histories) >= known:
            return ()
        time.sleep(0.2)
    return (f"after {wait:g} s not every rank has written a new dump; older ones are used",)


def _fresh(folder: Path, since: int) -> Dumps:
    new = {
        path.name
        for path in folder.iterdir()
        if path.name.startswith("rank-") and path.stat().st_mtime_ns >= since
    }
    if not new:
        return Dumps({}, None, {}, (), {})
    try:
        dumps = read_folder(folder)
    except FlightDumpError:
        return Dumps({}, None, {}, (), {})
    kept = {rank: one for rank, one in dumps.histories.items() if dump_name(rank) in new}
    return Dumps(kept, dumps.world_size, dumps.gone, dumps.problems, dumps.damaged)


def _write(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stdout.isatty() else shutil.get_terminal_size((120, 24)).columns
    out = Console(markup=False, highlight=False, emoji=False, width=width)
    if not report.findings:
        out.print(
            f"{report.outcome}: no fault is seen in the dumps of {len(report.histories)} ranks"
        )
    for number, found in enumerate(report.findings):
        doubt = "" if found.certain else " (likely)"
        lead = "" if number == 0 else "besides: "
        ranks = ", ".join(map(str, found.ranks))
        out.print(f"{lead}{str(found.kind).upper()}{doubt}: rank {ranks}", style="bold")
        out.print(found.text, soft_wrap=True)
        if found.calls:
            table = Table(box=None, pad_edge=False)
            for heading in ("rank", "call", "state", "call site"):
                table.add_column(heading, overflow="fold")
            for call in found.calls:
                site = "\n".join(map(str, call.site[:2]))
                table.add_row(str(call.rank), call.call, call.state, site)
            out.print(table)
        for note in found.notes:
            out.print(f"- {note}", soft_wrap=True)
        out.print()
    for problem in report.problems:
        out.print(f"note: {problem}", soft_wrap=True)
