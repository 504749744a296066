"""The paths that two ranks took through one function, from their positions in it."""

from __future__ import annotations

import re
from typing import Final

from torchyard_collectives.flight._history import Branch, Frame

__all__ = ["mentions_rank", "passed_branch", "separate_arms"]

_RANK: Final = re.compile(r"rank", re.IGNORECASE)


def passed_branch(site: tuple[Frame, ...], other: tuple[Frame, ...]) -> Branch | None:
    """Return the ``if`` that one rank is inside of and the other has left behind, or None."""
    pair = _parting(site, other)
    if pair is None:
        return None
    mine, theirs = pair
    for branch in mine.branches:
        # Before it, the other may still come to it.
        if theirs.line > branch.end:
            return branch
    return None


def separate_arms(site: tuple[Frame, ...], other: tuple[Frame, ...]) -> Branch | None:
    """Return the ``if`` of which two ranks took different arms, or None."""
    pair = _parting(site, other)
    if pair is None:
        return None
    mine, theirs = pair
    arms = {(branch.line, branch.end): branch.arm for branch in theirs.branches}
    for branch in mine.branches:
        if arms.get((branch.line, branch.end), branch.arm) != branch.arm:
            return branch
    return None


def mentions_rank(branch: Branch) -> bool:
    """Whether an ``if`` asks for the rank, so that ranks are meant to differ."""
    return _RANK.search(branch.test) is not None


def _parting(site: tuple[Frame, ...], other: tuple[Frame, ...]) -> tuple[Frame, Frame] | None:
    """Return the frames, innermost first, in which two ranks run different lines of a function."""
    for mine in site:
        for theirs in other:
            if (mine.file, mine.function) == (theirs.file, theirs.function):
                return (mine, theirs) if mine.line != theirs.line else None
    return None
