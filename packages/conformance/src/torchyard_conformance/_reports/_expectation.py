"""Expected failures: laws that a plugin is known to break, each with a deadline."""

from __future__ import annotations

import dataclasses
import datetime
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from torchyard import arguments

FILE: Final = "torchyard-expectations.toml"


class ExpectationError(ValueError):
    """A file of expectations is missing, unreadable, or says something that is not allowed."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One failure that is known and will be fixed.

    Attributes:
        law: the law's id.
        case: which of its cases: a shell pattern.
        reason: why it fails.
        link: where its fix is tracked.
        expires: the day from which, or the release of the plugin in which, it must be fixed:
            ``2027-01-31``, or a version.

    Raises:
        TypeError: a field is no string.
        ValueError: a field is empty, or ``expires`` is neither a day nor a version.
    """

    law: str
    case: str
    reason: str
    link: str
    expires: str

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            arguments.text("Expectation", item.name, getattr(self, item.name))
        _limit(self.expires)

    @property
    def name(self) -> str:
        """``law`` or ``law[case]``."""
        return self.law if self.case == "*" else f"{self.law}[{self.case}]"

    def matches(self, law: str, case: str) -> bool:
        """Return whether the row is about a case."""
        for name, value in (("law", law), ("case", case)):
            arguments.instance("Expectation.matches", name, value, str, "a string")
        return self.law == law and fnmatchcase(case, self.case)

    def expired(self, today: datetime.date, version: str) -> bool:
        """Return whether it should have been fixed by a day and a version of the plugin."""
        of = "Expectation.expired"
        arguments.instance(of, "today", today, datetime.date, "a datetime.date")
        if isinstance(today, datetime.datetime):
            # It is a date by its class, and Python compares it with none.
            raise arguments.wrong_kind(of, "today", "a datetime.date", today, "call date() of it")
        arguments.instance(of, "version", version, str, "a string")
        limit = _limit(self.expires)
        if isinstance(limit, datetime.date):
            return today >= limit
        try:
            return Version(version) >= limit
        except InvalidVersion:
            return True

    def to_json(self) -> dict[str, str]:
        """Return the row as JSON-ready data."""
        return dataclasses.asdict(self)


def read_expectations(path: Path) -> tuple[Expectation, ...]:
    """Read a file of expectations.

    It holds ``[[expected]]`` tables with the keys of :class:`Expectation`; ``case`` may be left
    out, which means every case. A file that knows of no failure says so: ``expected = []``.

    Raises:
        ExpectationError: names the file, the row, what was expected and what came.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExpectationError(f"{path.name}: expected a TOML file, got: {error}") from error
    rows = data.get("expected")
    if data.keys() != {"expected"} or not isinstance(rows, list):
        raise ExpectationError(
            f"{path.name}: expected [[expected]] tables and nothing else, got "
            f"{sorted(data) or 'an empty file'}"
        )
    return tuple(_row(f"{path.name}: expected[{place}]", row) for place, row in enumerate(rows))


def _row(where: str, row: Any) -> Expectation:
    names = [item.name for item in dataclasses.fields(Expectation)]
    if not isinstance(row, dict):
        raise ExpectationError(f"{where}: expected a table, got {row!r}")
    found = {"case": "*", **row}
    # TOML has dates of its own.
    if isinstance(found.get("expires"), datetime.date):
        found["expires"] = str(found["expires"])
    if sorted(found) != sorted(names):
        raise ExpectationError(f"{where}: expected the keys {names}, got {sorted(row)}")
    for name, value in found.items():
        if not isinstance(value, str) or not value.strip():
            raise ExpectationError(f"{where}.{name}: expected a string, got {value!r}")
    try:
        return Expectation(**found)
    except ValueError as error:
        # Of the fields, which are strings that are not empty, only this one has a form.
        raise ExpectationError(f"{where}.{str(error).removeprefix('Expectation: ')}") from None


def _limit(text: str) -> datetime.date | Version:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        pass
    try:
        return Version(text)
    except InvalidVersion:
        raise arguments.wrong_value(
            "Expectation", "expires", "a day such as 2027-01-31 or a version", repr(text)
        ) from None
