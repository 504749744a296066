"""A copy of a value of train.toml that differs: its place, its value, the right value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Drift:
    """One copy that differs.

    Attributes:
        path: the file, relative to the root.
        what: which of the things that it says.
        found: what it says.
        declared: what follows from train.toml.
        remedy: what to do; empty where ``check --write`` does it.
    """

    path: str
    what: str
    found: str
    declared: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """The one line about it."""
        remedy = self.remedy or "`torchyard release check --write` derives it"
        return f"{self.path}: {self.what}: {self.found}, declared: {self.declared}; {remedy}"


@dataclass(frozen=True, slots=True)
class Derived:
    """What a look at some copies gave.

    Attributes:
        drifts: those that differ.
        texts: the files that change when they are derived again, by their path.
        seen: how many copies were compared: none would be no check at all.
    """

    drifts: tuple[Drift, ...]
    texts: Mapping[str, str]
    seen: int
