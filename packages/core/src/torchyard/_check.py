"""One line of ``torchyard doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """How a check ended. ``unverified`` says that it could not be made, and is never a pass."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of the installation.

    Attributes:
        name: what was checked, in a few words.
        status: how it ended.
        text: what was found.
        hint: what to do; empty where nothing needs doing.
    """

    name: str
    status: CheckStatus
    text: str
    hint: str = ""
