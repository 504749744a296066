"""A TOML table that is read key by key: plugins' manifests, platforms and evidence are read so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from torchyard._errors import TorchyardError

NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")

_MISSING: Final = object()


class Table:
    """A table whose keys are read one by one; a key that nobody read is an error.

    Args:
        data: the table as tomllib returns it.
        path: where the table is in its file, for messages; empty for the whole file.
        error: the class of what is raised; its message names the key, what was expected and what
            was found.
    """

    def __init__(self, data: Mapping[str, Any], path: str, error: type[TorchyardError]) -> None:
        self.data = data
        self.path = path
        self.error = error
        self._read: set[str] = set()

    def take(self, key: str, kind: type, default: Any = _MISSING) -> Any:
        """Return the value of a key; an int is a float too, and a bool is no int."""
        self._read.add(key)
        value = self.data.get(key, default)
        if value is _MISSING:
            raise self.error(f"{self.at(key)}: expected a {kind.__name__}, got nothing")
        kinds = (float, int) if kind is float else kind
        # A default may be of another kind, such as None.
        given = key in self.data
        if given and (
            not isinstance(value, kinds) or (kind is not bool and isinstance(value, bool))
        ):
            raise self.error(f"{self.at(key)}: expected a {kind.__name__}, got {value!r}")
        return value

    def name(self, key: str) -> str:
        """Return a name of lower-case letters, digits, '-' and '_'."""
        value = str(self.take(key, str))
        if not NAME.fullmatch(value):
            raise self.error(
                f"{self.at(key)}: expected lower-case letters, digits, '-' and '_', got {value!r}"
            )
        return value

    def names(self, key: str, default: Any = _MISSING) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self.take(key, list, default if default is _MISSING else list(default))
        if not all(isinstance(item, str) for item in value):
            raise self.error(f"{self.at(key)}: expected a list of strings, got {value!r}")
        return tuple(value)

    def table(self, key: str, default: Any = _MISSING) -> Self:
        """Return a table inside this one."""
        return type(self)(self.take(key, dict, default), self.at(key), self.error)

    def entries(self, key: str) -> list[Self]:
        """Return the tables of an array of tables; empty where there is none."""
        value = self.take(key, list, [])
        if not all(isinstance(item, dict) for item in value):
            raise self.error(f"{self.at(key)}: expected [[{key}]] tables, got {value!r}")
        return [
            type(self)(item, f"{self.at(key)}[{index}]", self.error)
            for index, item in enumerate(value)
        ]

    def finish(self) -> None:
        """Raise where the table has a key that nobody read."""
        unknown = sorted(set(self.data) - self._read)
        if unknown:
            raise self.error(
                f"{self.at(unknown[0])}: unknown key; known here: {sorted(self._read)}"
            )

    def at(self, key: str) -> str:
        """Return where a key is in the file, for messages."""
        return f"{self.path}.{key}" if self.path else key
