"""``torchyard probe``: what the installed torch does of what it promises."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from torchyard_compile.probes import Outcome, Probed, differences, probe, programs

__all__ = ["command"]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which --diff reads.")
@click.option(
    "--diff",
    "before",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON of another torch: print what changed since.",
)
@click.option("--show", is_flag=True, help="Print the program of each that does not work.")
def command(names: tuple[str, ...], as_json: bool, before: Path | None, show: bool) -> None:
    """Run small programs on the installed torch: each works, is wrong, refuses or is slow."""
    unknown = sorted(set(names) - programs().keys())
    if unknown:
        raise click.BadParameter(f"{unknown[0]}: expected one of {', '.join(programs())}")
    old = [] if before is None else _read(before)
    chosen = names or tuple(programs())
    with Progress(disable=as_json) as progress:
        task = progress.add_task(f"torch {torch.__version__}", total=len(chosen))
        found = probe(chosen, done=lambda _: progress.advance(task))
    if as_json:
        rows = [asdict(item) for item in found]
        click.echo(json.dumps({"torch": torch.__version__, "probes": rows}, indent=1))
        return
    table: Any = Table("probe", "outcome", "seconds", "claim, or why not")
    for item in found:
        table.add_row(item.name, item.outcome, f"{item.seconds:.1f}", item.text or item.claim)
    Console().print(table)
    for line in differences(old, found):
        click.echo(line)
    for item in found if show else ():
        if item.outcome is not Outcome.WORKS:
            click.echo(f"\n# {item.name}: {item.text}\n{programs()[item.name].read_text()}")


def _read(path: Path) -> list[Probed]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["probes"]
        return [Probed(**{**row, "outcome": Outcome(row["outcome"])}) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise click.BadParameter(f"{path}: expected what --json printed, got: {error}") from error
