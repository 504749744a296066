"""The list of words in words.toml as patterns."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

__all__ = ["RULES", "Rule", "parse_rules"]

_LIST: Final = Path(__file__).with_name("words.toml")
# Where a sentence of a comment or a docstring goes on in the next line.
_BLANK: Final = r"(?:[ \t]|[ \t]*\n[ \t]*(?:#|//|\*)?[ \t]*)"


@dataclass(frozen=True, slots=True)
class Rule:
    """One word or phrase, and what to say instead.

    Attributes:
        pattern: what it looks like in a file.
        say: what to write instead.
        found: texts that the pattern finds.
        fine: texts in which it finds nothing.
        allow: shell patterns of paths in which the word is right.
    """

    pattern: re.Pattern[str]
    say: str
    found: tuple[str, ...]
    fine: tuple[str, ...]
    allow: tuple[str, ...]

    def matches(self, path: str, text: str) -> Iterator[tuple[int, str]]:
        """Yield the line and the matched text of each match in a file."""
        if any(fnmatchcase(path, allowed) for allowed in self.allow):
            return
        for match in self.pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match.group().split())


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules that a file like words.toml lists."""
    return tuple(
        Rule(
            re.compile(row["pattern"].replace(" ", _BLANK)),
            row["say"],
            tuple(row["found"]),
            tuple(row.get("fine", ())),
            tuple(row.get("allow", {})),
        )
        for row in tomllib.loads(text)["words"]
    )


RULES: Final = parse_rules(_LIST.read_text(encoding="utf-8"))
