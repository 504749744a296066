"""A candidate's scorecard, from its folder and the train.toml of its commit."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

from torchyard_release._declaration._train import FILE
from torchyard_release._gates._scorecard import Scorecard, judge
from torchyard_release._gates._verification import expected_cells
from torchyard_release._records._candidate import sha256
from torchyard_release._records._evidence import FOLDER, Evidence, read_evidence
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._trust import Judged, judged


def scorecard_of(
    workspace: Workspace, number: int, *, today: datetime.date | None = None
) -> Scorecard:
    """Return the scorecard of a candidate.

    Gates and waivers are those of the candidate's commit. Evidence about earlier candidates counts
    where it is about the very same bytes; a file of evidence that is not as it was recorded counts
    for nothing.

    Args:
        workspace: the repository.
        number: of the candidate.
        today: the date by which waivers are judged; the clock's where it is None.
    """
    found = judged(workspace, number)
    train, candidate = found.train, found.candidate
    evidence, changed = recorded_evidence(workspace, number)
    today = today or datetime.datetime.now(datetime.UTC).date()
    rows, notes = judge(
        train.gates,
        train.waivers,
        evidence,
        candidate.sums,
        today=today,
        expected=expected_cells(found.workspace, candidate),
    )
    return Scorecard(
        project=train.name,
        version=candidate.version,
        candidate=candidate.candidate,
        commit=candidate.commit,
        today=today,
        artifacts=candidate.sums,
        rows=rows,
        notes=(*_changed(changed), *_differing(found), *notes),
        damage=found.damage(),
    )


def recorded_evidence(
    workspace: Workspace, number: int
) -> tuple[dict[Path, Evidence], tuple[Path, ...]]:
    """Return the evidence about a candidate and those before it that is as it was recorded.

    Returns:
        the evidence by its file, and the files that are not what the journal says of them.
    """
    release = workspace.release
    kept = {e.data["sha256"] for e in release.entries() if e.kind == "evidence"}
    found: dict[Path, Evidence] = {}
    changed = []
    for earlier in range(1, number + 1):
        folder = release.candidate(earlier) / FOLDER
        for path, evidence in read_evidence(folder).items():
            if sha256(path) in kept:
                found[path] = evidence
            else:
                changed.append(path)
    return found, tuple(changed)


def _changed(paths: tuple[Path, ...]) -> Iterator[str]:
    for path in paths:
        yield (
            f"{'/'.join(path.parts[-3:])} is not what was recorded: it was changed since, and "
            f"counts for nothing; run its gate again"
        )


def _differing(found: Judged) -> Iterator[str]:
    for line in found.differing:
        yield f"{FILE} differs from {found.candidate.tag}, which decides: {line}"
