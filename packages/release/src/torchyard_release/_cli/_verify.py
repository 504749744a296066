"""``torchyard release verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from torchyard_release._cli._command import (
    DONE,
    REFUSED,
    Answer,
    console,
    operation,
    release_command,
)
from torchyard_release._errors import ReleaseError
from torchyard_release._gates._attempts import attempt, can_try
from torchyard_release._gates._judgement import scorecard_of
from torchyard_release._gates._scorecard import Status
from torchyard_release._gates._verification import Bench, cells_of, try_cell
from torchyard_release._records._evidence import Evidence, Outcome, record
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._trust import judged

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option("--candidate", type=click.IntRange(min=1), help="Its number; default the newest.")
@click.option("--gate", "gates", multiple=True, help="Only these; default all that can be tried.")
@click.option("--cell", "cells", multiple=True, help="Only these cells.")
@click.option("--again", is_flag=True, help="Also what passed on these very bytes already.")
@release_command
def verify(
    workspace: Workspace,
    candidate: int | None,
    gates: tuple[str, ...],
    cells: tuple[str, ...],
    again: bool,
) -> Answer:
    """Install a candidate into clean environments, try it, and record what came as evidence.

    What passed on the very same bytes before, also of an earlier candidate, is left alone. Exit
    status 3 where something failed. What cannot be tried here is recorded as unverified.
    """
    number = candidate or workspace.release.latest()[0]
    found = judged(workspace, number)
    folder = found.folder
    known = {gate.name: gate for gate in found.train.gates}
    if strange := [name for name in gates if name not in known]:
        raise ReleaseError(
            f"--gate: expected one of {', '.join(known)}, got {', '.join(strange)}",
            "name a gate of train.toml",
        )
    tried: list[Evidence] = []
    kept = 0
    log = console(stderr=True)
    rows = () if again else scorecard_of(workspace, number).rows
    green = {(row.gate, row.cell) for row in rows if row.status is Status.PASS}
    with operation(workspace) as journal, Bench.open(found) as bench:
        for gate in known.values():
            if (gates and gate.name not in gates) or not can_try(gate):
                continue
            for cell in cells_of(found.workspace, found.candidate, gate):
                if cells and cell not in cells:
                    continue
                if (gate.name, cell) in green:
                    kept += 1
                    continue
                evidence = try_cell(gate, cell, bench, attempt)
                record(folder, journal, evidence)
                tried.append(evidence)
                name = f"{gate.name} {cell}".rstrip()
                line = f"{evidence.seconds:7.1f} s  {name}: {evidence.outcome}: {evidence.summary}"
                log.print(line, soft_wrap=True)
        if not tried and not kept:
            raise ReleaseError(
                "verify: expected cells to try, found none", "name gates and cells of train.toml"
            )
        failed = any(item.outcome is Outcome.FAIL for item in tried)
        journal.code = REFUSED if failed else DONE
    return Answer(
        [item.to_json() for item in tried],
        lambda out: _show(out, tried, kept),
        journal.code,
    )


def _show(out: Console, tried: list[Evidence], kept: int) -> None:
    counts = {outcome: sum(item.outcome is outcome for item in tried) for outcome in Outcome}
    out.print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    if kept:
        out.print(f"{kept} passed on these very bytes before; --again tries them again")
    out.print("next: `torchyard release scorecard`")
