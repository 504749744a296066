"""Metal source as tokens, which joined give the source again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Token", "closing", "significant", "split", "tokens"]

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<include>\#[ \t]*include[^\n]*)
      | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<number>0[xX][0-9a-fA-F']+[uUlL]*|(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[a-zA-Z]*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<mark>\[\[|\]\]|->|::|<<=|>>=|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|<<|.)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "[[": "]]"}


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        kind: ``blank`` (comments too), ``include``, ``text``, ``number``, ``word`` or ``mark``.
        text: as it is written in the source.
        line: on which it begins, from 1.
    """

    kind: str
    text: str
    line: int


def tokens(source: str) -> list[Token]:
    """Return the tokens of a source."""
    found, line = [], 1
    for match in _TOKEN.finditer(source):
        found.append(Token(str(match.lastgroup), match[0], line))
        line += match[0].count("\n")
    return found


def significant(items: list[Token], at: int, step: int = 1) -> int:
    """Return the place of the next token that is not blank, before or behind one; -1: none is."""
    at += step
    while 0 <= at < len(items):
        if items[at].kind != "blank":
            return at
        at += step
    return -1


def closing(items: list[Token], at: int) -> int:
    """Return the place of the bracket that closes the one at a place; the end where none does.

    ``]]`` closes two brackets where it is not an attribute's end.
    """
    stack: list[str] = []
    for place in range(at, len(items)):
        text = items[place].text if items[place].kind == "mark" else ""
        if text in _CLOSING:
            stack.append(_CLOSING[text])
        elif text == "]]" and stack[-2:] == ["]", "]"]:
            del stack[-2:]
        elif stack and text == stack[-1]:
            stack.pop()
        if not stack:
            return place
    return len(items) - 1


def split(items: list[Token], separator: str = ",") -> list[list[Token]]:
    """Return tokens in the parts between separators outside of all brackets, angles too."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for item in items:
        if item.kind == "mark":
            if item.text in ("(", "[", "{", "[[", "<"):
                depth += 1
            elif item.text in (")", "]", "}", "]]", ">"):
                depth -= 1
            elif item.text == separator and depth == 0:
                parts.append([])
                continue
        parts[-1].append(item)
    return [part for part in parts if any(item.kind != "blank" for item in part)]
