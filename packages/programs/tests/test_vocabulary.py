"""The README lists the words that programs use."""

from __future__ import annotations

import re
from pathlib import Path

from torchyard_programs._program.vocabulary import WORDS

_README = Path(__file__).parents[1] / "README.md"


def test_the_readme_lists_every_word() -> None:
    section = _README.read_text(encoding="utf-8").partition("## The words")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    listed = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert listed - {"other", "self"} == WORDS
