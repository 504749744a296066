"""``torchyard release inspect``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from torchyard_release._cli._command import DONE, REFUSED, Answer, operation, release_command
from torchyard_release._gates._inspection import Inspection, inspect_candidate
from torchyard_release._gates._scorecard import step_of
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@release_command
def inspect(workspace: Workspace) -> Answer:
    """Hold the newest candidate's files against train.toml; write their bill of materials.

    The set must be exact, and each file's name, tag, metadata, pins, libraries, digests and size
    as declared. The public API is compared with the last release: what broke must be announced by
    a fragment and allowed by the version. Exit status 3: something is wrong with the candidate.
    """
    with operation(workspace) as journal:
        inspection = inspect_candidate(workspace, journal)
        journal.code = DONE if inspection.passes else REFUSED
    # A train whose gates need no clean environment has nothing to verify.
    gates = workspace.train.gates
    step = "verify" if any(step_of(gate) == "verify" for gate in gates) else "scorecard"
    data = asdict(inspection) | {"passes": inspection.passes}
    return Answer(data, lambda out: _show(out, inspection, step), journal.code)


def _show(out: Console, inspection: Inspection, step: str) -> None:
    for finding in inspection.findings:
        out.print(finding.line, style="red", soft_wrap=True)
    names = sum(change.names for change in inspection.api)
    since = inspection.compared_with or "no release before this one"
    out.print(f"API: {names} public names; compared with: {since}")
    for change in inspection.api:
        for line in change.broken:
            out.print(f"  breaks: {line}", style="yellow", soft_wrap=True)
        for line in change.deprecated:
            out.print(f"  deprecates: {line}", soft_wrap=True)
        for line in change.faults:
            out.print(line, style="red", soft_wrap=True)
    count = len(inspection.candidate.artifacts)
    if inspection.passes:
        text = f"{inspection.candidate.candidate}: {count} artifacts are as declared"
        out.print(f"{text}; bill of materials: {inspection.sbom}", style="green", soft_wrap=True)
        out.print(f"next: `torchyard release {step}`")
    else:
        out.print(f"{inspection.candidate.candidate}: does not pass", style="bold red")
