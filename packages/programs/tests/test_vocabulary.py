"""The README lists the words that programs use, and tests of languages try each."""

from __future__ import annotations

import re
from pathlib import Path

from packages.programs.tests import words
from torchyard_programs._program.vocabulary import REVERSED, WORDS

_README = Path(__file__).parents[1] / "README.md"


def test_the_readme_lists_every_word() -> None:
    section = _README.read_text(encoding="utf-8").partition("## The words")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    listed = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert listed - {"other", "self"} == WORDS


def test_each_word_is_tried() -> None:
    tried = {word.word for word in words.WORDS}
    assert tried | set(REVERSED) | {"getitem"} == WORDS | set(REVERSED)
