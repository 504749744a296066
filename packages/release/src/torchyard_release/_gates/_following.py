"""The next command of a train."""

from __future__ import annotations

from typing import Final

from torchyard_release._errors import ReleaseError
from torchyard_release._gates._scorecard import Scorecard, step_of
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._trust import MANIFEST, judged

# In the order in which they are taken.
_STEPS: Final = ("build --again", "inspect", "verify")


def following(workspace: Workspace, card: Scorecard, number: int) -> str:
    """Return the words after ``torchyard release`` that a candidate which was built waits for.

    A row that was tried on these bytes and is red, or cannot be tried here, is fixed by no
    command: the scorecard says what to do about it.

    Args:
        workspace: the repository.
        card: the candidate's scorecard.
        number: of the candidate.
    """
    if card.damage:
        return "build --again"
    stopping = [row for row in card.rows if row.stops]
    if not stopping:
        return _agreed(workspace, number)
    untried = {row.gate for row in stopping if row.stale or not row.evidence}
    gates = {gate.name: gate for gate in judged(workspace, number).train.gates}
    steps = [step_of(gates[name]) for name in untried]
    return next(iter(sorted(steps, key=_STEPS.index)), "scorecard")


def _agreed(workspace: Workspace, number: int) -> str:
    """Return what follows a green scorecard: signatures, until there are enough."""
    found = judged(workspace, number)
    try:
        if (found.folder / MANIFEST).exists():
            found.manifest()
            return "promote"
    except ReleaseError:
        # Too few have signed; a manifest that is no such thing is damage, which comes before.
        pass
    return "approve --key KEY.pem"
