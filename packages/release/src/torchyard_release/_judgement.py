"""A candidate's scorecard, from what its folder and train.toml hold."""

from __future__ import annotations

import datetime
from pathlib import Path

from torchyard_release._candidate import read_candidate
from torchyard_release._evidence import FOLDER, Evidence, read_evidence
from torchyard_release._scorecard import Scorecard, judge
from torchyard_release._verification import expected_cells
from torchyard_release._workspace import Workspace


def scorecard_of(
    workspace: Workspace, number: int, *, today: datetime.date | None = None
) -> Scorecard:
    """Return the scorecard of a candidate.

    Evidence about earlier candidates counts where it is about the very same bytes.

    Args:
        workspace: the repository.
        number: of the candidate.
        today: the date by which waivers are judged; the clock's where it is None.
    """
    release, train = workspace.release, workspace.train
    candidate = read_candidate(release.candidate(number))
    found: dict[Path, Evidence] = {}
    for earlier in range(1, number + 1):
        found |= read_evidence(release.candidate(earlier) / FOLDER)
    today = today or datetime.datetime.now(datetime.UTC).date()
    rows, notes = judge(
        train.gates,
        train.waivers,
        found,
        candidate.sums,
        today=today,
        expected=expected_cells(workspace, candidate),
    )
    return Scorecard(
        project=train.name,
        version=candidate.version,
        candidate=candidate.candidate,
        commit=candidate.commit,
        today=today,
        artifacts=candidate.sums,
        rows=rows,
        notes=notes,
    )
