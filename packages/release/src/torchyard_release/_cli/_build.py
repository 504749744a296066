"""``torchyard release build``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from torchyard_release._build._build import Built, build_candidate
from torchyard_release._cli._command import (
    DONE,
    REFUSED,
    Answer,
    console,
    group_of,
    operation,
    release_command,
)
from torchyard_release._copies._bump import departing
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option("--again", is_flag=True, help="Rebuild what was built before, all of it twice.")
@click.option(
    "--no-isolation",
    is_flag=True,
    help="Build with what is installed here instead of in fresh environments.",
)
@release_command
def build(workspace: Workspace, again: bool, no_isolation: bool) -> Answer:
    """Build every sdist and wheel of the newest candidate, twice, and compare them.

    They are built out of its tag, never out of the checkout: once as usual, and once elsewhere,
    with another umask, time zone and age of the files. Of a package in which nothing changed since
    the last candidate, that candidate's files are one of the two. Exit status 3: some came out
    differently; the members that differ are listed.
    """
    with operation(workspace) as journal:
        total = len(departing(workspace.git, workspace.train)) + 1
        with _progress(total) as progress:
            built = build_candidate(
                workspace,
                journal,
                group_of(),
                again=again,
                isolated=not no_isolation,
                progress=progress,
            )
        journal.code = REFUSED if built.differences or built.drifts else DONE
    return Answer(asdict(built), lambda out: _show(out, built), journal.code)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar where stderr is a terminal, and lines where it is not."""
    from rich.progress import Progress, TimeElapsedColumn

    if not sys.stderr.isatty():
        yield lambda text: click.echo(text, err=True)
        return
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def step(text: str) -> None:
            bar.update(task, description=text)
            bar.advance(task, 0 if not bar.tasks[0].description else 1)

        yield step


def _show(out: Console, built: Built) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("file", no_wrap=True)
    table.add_column("bytes", justify="right")
    table.add_column("sha256", no_wrap=True)
    table.add_column("built twice")
    for item in built.candidate.artifacts:
        kept = f"identical, as in {built.last}" if item.package in built.unchanged else "identical"
        same = "differs" if item.file in built.differences else kept
        table.add_row(item.file, str(item.size), item.sha256[:16], same)
    out.print(table)
    for name, lines in built.differences.items():
        for line in lines:
            out.print(f"{name}: {line}", style="red", soft_wrap=True)
    for line in built.drifts:
        out.print(line, style="red", soft_wrap=True)
    took = sum(built.seconds.values())
    out.print(f"{built.candidate.candidate}: digest {built.candidate.digest}, {took:.0f} s")
    out.print("next: `torchyard release inspect`")
