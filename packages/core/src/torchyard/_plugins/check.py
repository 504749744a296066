"""One line of ``torchyard doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torchyard import arguments


class CheckStatus(StrEnum):
    """How a check ended. ``unverified``: it could not be made, which is never a pass."""

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

    def __post_init__(self) -> None:
        arguments.text("Check", "name", self.name)
        arguments.instance("Check", "status", self.status, CheckStatus)
        for field in ("text", "hint"):
            arguments.instance("Check", field, getattr(self, field), str, "a string")
