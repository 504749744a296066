"""Findings about an artifact, with stable names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What can be wrong with a set of artifacts; each has a mutant among the tests."""

    EMPTY = "empty-set"
    MISSING = "missing-artifact"
    EXTRA = "extra-artifact"
    WRONG_TAG = "wrong-tag"
    WRONG_NAME = "wrong-name"
    WRONG_VERSION = "wrong-version"
    VERSION_INSIDE = "wrong-version-inside"
    UNREADABLE = "unreadable"
    METADATA = "wrong-metadata"
    PYTHON = "wrong-requires-python"
    CLASSIFIERS = "classifiers-beyond-python"
    TAG_PYTHON = "tag-beyond-python"
    SIBLING_PIN = "lost-sibling-pin"
    TORCH_PIN = "lost-torch-pin"
    REQUIREMENTS = "requirements-differ"
    DIRECT = "direct-reference"
    PRERELEASE = "prerelease-requirement"
    LIBRARY = "missing-library"
    PURITY = "pure-with-library"
    PLATFORM = "beyond-platform"
    ABI = "beyond-stable-abi"
    STRAY = "stray-file"
    RECORD = "record-differs"
    BUDGET = "over-budget"
    LICENSE = "missing-license"
    CHANGED = "changed-since-built"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        file: the artifact; empty where it is the set.
        fault: what kind of thing.
        text: what was expected, and what was found.
        remedy: what to do.
    """

    file: str
    fault: Fault
    text: str
    remedy: str

    @property
    def line(self) -> str:
        """The one line about it."""
        return f"{self.file or 'the set'}: {self.fault}: {self.text}; {self.remedy}"
