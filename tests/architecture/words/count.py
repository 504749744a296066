"""How many listed words are in each folder of the checkout, and how many are allowed."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.tree import ROOT, files
from tests.architecture.words.rules import RULES

__all__ = ["Match", "budget", "counts", "matches", "write_budget"]

_BUDGET: Final = Path(__file__).with_name("budget.toml")
_TEXT: Final = {".c", ".cc", ".cpp", ".h", ".inc", ".jinja", ".md", ".py", ".pyi", ".toml", ".yaml"}
_HERE: Final = "tests/architecture/words/"
_HEADER: Final = """\
# Folder -> the most words of words.toml that it may hold. Numbers may only fall; the aim is none:
# `python -m tests.architecture.words --write` lowers them to what is there and raises none.

"""


class Match(NamedTuple):
    """One listed word in a file."""

    folder: str
    path: str
    line: int
    text: str
    say: str


def _folder(path: Path) -> str:
    """Return the folder that answers for a file: a package, a plugin, or one of the root's."""
    if path.parts[0] in {"packages", "plugins"}:
        return "/".join(path.parts[:2])
    return path.parts[0] if len(path.parts) > 1 else "."


@cache
def matches() -> tuple[Match, ...]:
    """Return every listed word of the checkout, in the order of files."""
    return tuple(_matches())


def _matches() -> Iterator[Match]:
    for path in files():
        name = path.as_posix()
        if path.suffix not in _TEXT or name.startswith(_HERE):
            continue
        # A path is read too: a file's name is a name.
        text = f"{name}\n" + (ROOT / path).read_text(encoding="utf-8")
        found = [
            Match(_folder(path), name, line - 1, word, rule.say)
            for rule in RULES
            for line, word in rule.matches(name, text)
        ]
        yield from sorted(found, key=lambda match: match.line)


def counts() -> Counter[str]:
    """Return the number of listed words by folder."""
    return Counter(match.folder for match in matches())


def budget() -> dict[str, int]:
    """Return the most that each folder may hold; a folder without an entry may hold none."""
    if not _BUDGET.is_file():
        return {}
    return dict(tomllib.loads(_BUDGET.read_text(encoding="utf-8")).get("most", {}))


def write_budget(*, start: bool = False) -> None:
    """Lower every number to what is there.

    Args:
        start: take what is there as it is, where no numbers are yet.
    """
    found, allowed = counts(), budget()
    if start and not allowed:
        allowed = dict(found)
    rows = {name: min(most, found[name]) for name, most in sorted(allowed.items())}
    lines = [f'"{name}" = {most}' for name, most in rows.items() if most]
    _BUDGET.write_text(_HEADER + "[most]\n" + "\n".join(lines) + "\n", encoding="utf-8")
