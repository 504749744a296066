"""``torchyard cache top``: what the caches of this user's processes save, as they run."""

from __future__ import annotations

import json
import time
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from torchyard_cache._reuse._stats import stats_folder

__all__ = ["top"]

# A process that left no counts for so long is shown no longer.
_SECONDS = 60.0


@click.command()
@click.option("--once", is_flag=True, help="Print the counts, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and end.")
def top(once: bool, as_json: bool) -> None:
    """Show what caches of keys, values and outputs save, in processes of this user."""
    if as_json:
        click.echo(json.dumps(_found(), indent=1))
    elif once:
        Console().print(_table())
    else:
        with Live(_table(), refresh_per_second=1) as live:
            while True:
                time.sleep(1.0)
                live.update(_table())


def _found() -> list[dict[str, Any]]:
    found = []
    for path in sorted(stats_folder().glob("*.json")):
        try:
            if time.time() - path.stat().st_mtime < _SECONDS:
                found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            # Its process is replacing it.
            continue
    return found


def _table() -> Table:
    table: Any = Table(
        *("process", "cache", "calls", "hits", "tokens reused", "seconds saved", "MiB", "evictions")
    )
    for row in _found():
        table.add_row(
            *(str(row["pid"]), row["name"], f"{row['calls']:,}", f"{row['hits']:,}"),
            *(f"{row['tokens_reused']:,}", f"{row['seconds_saved']:.1f}"),
            *(f"{row['bytes'] / 2**20:.1f}", f"{row['evictions']:,}"),
        )
    return table  # type: ignore[no-any-return]
