"""Files of what was measured on a machine, in the user's cache folder: merged when written."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from torchyard import arguments

_SCHEMA: Final = 1


class MeasuredFile:
    """A file of entries by machine and name, which any number of processes may write to.

    Args:
        path: of the file; its folder is made when it is written.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = arguments.path("MeasuredFile", "path", path)

    def read(self, machine: str) -> dict[str, Any]:
        """Return a machine's entries; empty where there are none.

        Raises:
            OSError, ValueError, TypeError, KeyError: the file is not one of these.
        """
        arguments.text("MeasuredFile.read", "machine", machine)
        if not self.path.exists():
            return {}
        found = self._machines().get(machine, {})
        if not isinstance(found, dict):
            raise TypeError("a machine: expected a table")
        return found

    def merge(self, machine: str, found: Mapping[str, Any]) -> None:
        """Add entries to a machine's, atomically; those of other names and machines stay.

        Raises:
            OSError, ValueError, TypeError, KeyError: there is a file that is not one of these.
        """
        arguments.text("MeasuredFile.merge", "machine", machine)
        arguments.mapping("MeasuredFile.merge", "found", found)
        # Whoever only reads does without this.
        from filelock import FileLock

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock"):
            known = self._machines() if self.path.exists() else {}
            known.setdefault(machine, {}).update(found)
            with tempfile.NamedTemporaryFile(
                "w", dir=self.path.parent, prefix=self.path.name, delete=False, encoding="utf-8"
            ) as new:
                json.dump({"schema": _SCHEMA, "machines": known}, new, indent=1, sort_keys=True)
            os.replace(new.name, self.path)

    def _machines(self) -> dict[str, Any]:
        content = json.loads(self.path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
            raise ValueError(f"expected schema {_SCHEMA}")
        machines = content["machines"]
        if not isinstance(machines, dict):
            raise TypeError("machines: expected a table")
        return machines


def digest_of(words: Sequence[str]) -> str:
    """Return a short digest of what a measurement holds for."""
    found = arguments.sequence("digest_of", "words", words, _word)
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def _word(of: str, name: str, value: object) -> str:
    return arguments.instance(of, name, value, str, "a string")
