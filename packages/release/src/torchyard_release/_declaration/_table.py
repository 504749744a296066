"""A TOML table read key by key; errors name the key, the expected and the actual value."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from torchyard_release._errors import TrainError

_ABSENT: Final = object()
_WORDS: Final = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list of strings",
    dict: "a table",
    datetime.date: "a date such as 2027-01-13",
}


class Table:
    """One table of a TOML file.

    Args:
        data: what it holds.
        file: the name of the file.
        path: the keys that lead to it.
        row: its number, from 1, where it is one of a list of tables.
    """

    def __init__(
        self, data: Mapping[str, Any], file: str, path: tuple[str, ...] = (), row: int = 0
    ) -> None:
        self._data = data
        self._file = file
        self._path = path
        name = ".".join(path)
        inside = f"[[{name}]] number {row}: " if row else f"[{name}] " if path else ""
        self._where = f"{file}: {inside}"
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def text(self, key: str, default: object = _ABSENT) -> str:
        """Return a string; without a default it must be there and not be empty."""
        value: str = self._value(key, str, default)
        if default is _ABSENT and not value.strip():
            raise self.error(key, "a string that is not empty", repr(value))
        return value

    def number(self, key: str, default: object = _ABSENT) -> int:
        """Return a whole number."""
        value: int = self._value(key, int, default)
        return value

    def flag(self, key: str, default: object = _ABSENT) -> bool:
        """Return true or false."""
        value: bool = self._value(key, bool, default)
        return value

    def day(self, key: str) -> datetime.date:
        """Return a date."""
        value: datetime.date = self._value(key, datetime.date, _ABSENT)
        return value

    def words(self, key: str, default: object = _ABSENT) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self._value(key, list, default)
        if any(not isinstance(value, str) for value in values):
            raise self.error(key, _WORDS[list], repr(values))
        return tuple(values)

    def table(self, key: str, default: object = _ABSENT) -> Table:
        """Return a table inside."""
        return Table(self._value(key, dict, default), self._file, (*self._path, key))

    def rows(self, key: str) -> list[Table]:
        """Return a list of tables, which may be missing."""
        self._read.add(key)
        values = self._data.get(key, [])
        if not isinstance(values, list) or any(not isinstance(row, dict) for row in values):
            raise self.error(key, f"a list of tables, [[{key}]]", repr(values))
        path = (*self._path, key)
        return [Table(row, self._file, path, number) for number, row in enumerate(values, 1)]

    def names(self) -> tuple[str, ...]:
        """Return the keys in the order of the file."""
        return tuple(self._data)

    def done(self) -> None:
        """Refuse keys that nothing has asked for."""
        unknown = sorted(set(self._data) - self._read)
        if unknown:
            raise TrainError(
                f"{self._where}{unknown[0]}: unknown key; expected one of: "
                f"{', '.join(sorted(self._read))}",
                "correct its spelling or remove it",
            )

    def error(self, key: str, expected: str, got: str) -> TrainError:
        """Return the error about one key."""
        return TrainError(
            f"{self._where}{key}: expected {expected}, got {got}", f"correct {key} in {self._file}"
        )

    def _value(self, key: str, kind: type, default: object) -> Any:
        self._read.add(key)
        value = self._data.get(key, default)
        if value is _ABSENT:
            raise self.error(key, _WORDS[kind], "nothing")
        # A bool is an int to Python, and a datetime a date.
        fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        if kind is datetime.date and isinstance(value, datetime.datetime):
            fits = False
        if not fits and not (kind is list and isinstance(value, tuple)):
            raise self.error(key, _WORDS[kind], repr(value))
        return value
