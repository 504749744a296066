"""Fields of untrusted JSON, each checked when it is read."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from typing import Final

from torchyard_collectives.flight._errors import FlightDumpError

__all__ = ["Fields"]

_LONGEST_TEXT: Final = 1 << 16
_LARGEST: Final = 1 << 63


class Fields:
    """A JSON table or list, with the path that leads to it for the errors."""

    __slots__ = ("_data", "where")

    def __init__(self, data: object, where: str) -> None:
        self._data = data
        self.where = where

    def has(self, name: str) -> bool:
        """Whether a table has a field."""
        return isinstance(self._data, dict) and name in self._data

    def table(self, name: str) -> Fields:
        """Return a field that is a table."""
        return Fields(self._typed(name, dict), f"{self.where}.{name}")

    def sequence(self, name: str) -> Fields:
        """Return a field that is a list."""
        return Fields(self._typed(name, list), f"{self.where}.{name}")

    def text(self, name: str) -> str:
        """Return a text of bounded length."""
        return self._bounded(self._typed(name, str), name)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        return bool(self._typed(name, bool))

    def integer(self, name: str, low: int = -_LARGEST, high: int = _LARGEST) -> int:
        """Return an integer within bounds."""
        return self._within(self._get(name), f".{name}", low, high)

    def optional_integer(self, name: str) -> int | None:
        """Return an integer or None."""
        return None if self._get(name) is None else self.integer(name)

    def word(self, name: str, words: Iterable[str]) -> str:
        """Return a text that is one of some words."""
        text = self.text(name)
        known = list(map(str, words))
        if text not in known:
            raise self._error(f".{name}", f"one of {', '.join(known)}", text)
        return text

    def rows(self) -> Iterator[Fields]:
        """Yield the tables of a list."""
        for number, row in enumerate(self._items()):
            if not isinstance(row, dict):
                raise self._error(f"[{number}]", "a table", row)
            yield Fields(row, f"{self.where}[{number}]")

    def rows_of_lists(self, name: str) -> Iterator[Fields]:
        """Yield the lists in a list."""
        for number, row in enumerate(self.sequence(name)._items()):
            if not isinstance(row, list):
                raise self._error(f".{name}[{number}]", "a list", row)
            yield Fields(row, f"{self.where}.{name}[{number}]")

    def integers(self, low: int = -_LARGEST, high: int = _LARGEST) -> Iterator[int]:
        """Yield the integers of a list."""
        for number, item in enumerate(self._items()):
            yield self._within(item, f"[{number}]", low, high)

    def texts(self) -> Iterator[str]:
        """Yield the texts of a list."""
        for number, item in enumerate(self._items()):
            if not isinstance(item, str):
                raise self._error(f"[{number}]", "a text", item)
            yield self._bounded(item, f"[{number}]")

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the names and texts of a table."""
        assert isinstance(self._data, dict)
        for name in self._data:
            yield name, self.text(name)

    def pair(self) -> tuple[Fields, str]:
        """Return a list of two: a list and a text."""
        items = self._items()
        if len(items) != 2 or not isinstance(items[0], list) or not isinstance(items[1], str):
            raise self._error("", "a list and a text", items)
        return Fields(items[0], f"{self.where}[0]"), self._bounded(items[1], "[1]")

    def _items(self) -> list[object]:
        if not isinstance(self._data, list):
            raise self._error("", "a list", self._data)
        return self._data

    def _get(self, name: str) -> object:
        if not isinstance(self._data, dict):
            raise self._error("", "a table", self._data)
        if name not in self._data:
            raise FlightDumpError(
                f"{self.where}.{name}: expected a value, got none; the dump is damaged"
            )
        found: object = self._data[name]
        return found

    def _typed(self, name: str, kind: type) -> object:
        value = self._get(name)
        if not isinstance(value, kind):
            raise self._error(f".{name}", f"a JSON {kind.__name__}", value)
        return value

    def _bounded(self, value: object, name: str) -> str:
        assert isinstance(value, str)
        if len(value) > _LONGEST_TEXT:
            raise self._error(f".{name}", f"at most {_LONGEST_TEXT} characters", len(value))
        return value

    def _within(self, value: object, path: str, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._error(path, f"an integer from {low} to {high}", value)
        return value

    def _error(self, path: str, expected: str, got: object) -> FlightDumpError:
        return FlightDumpError(
            f"{self.where}{path}: expected {expected}, got {reprlib.repr(got)}; the dump is damaged"
        )
