"""The documentation as data: its pages, their code blocks, links and headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.architecture.tree import ROOT, files

__all__ = ["PAGES", "Example", "anchors", "examples", "links"]

PAGES: Final = tuple(path for path in files() if path.suffix == ".md")

_FENCED: Final = re.compile(
    r"^(?P<mark><!-- run -->\n+)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """A code block that its page marks with ``<!-- run -->``.

    Attributes:
        page: the page, relative to the root.
        line: where the block starts.
        language: ``python`` or ``console``.
        text: the block.
    """

    page: Path
    line: int
    language: str
    text: str


def examples(page: Path) -> list[Example]:
    """Return the marked code blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Example(page, text.count("\n", 0, found.start()) + 1, found["language"], found["text"])
        for found in _FENCED.finditer(text)
        if found["mark"]
    ]


def links(page: Path) -> list[str]:
    """Return the targets of a page's links, those in code left out."""
    return [found["target"] for found in _LINK.finditer(_prose(page))]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings make; none for what is no page."""
    titles = [found["title"] for found in _HEADING.finditer(_prose(page))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _prose(page: Path) -> str:
    path = ROOT / page
    if path.suffix != ".md" or not path.is_file():
        return ""
    return _FENCED.sub("", path.read_text(encoding="utf-8"))
