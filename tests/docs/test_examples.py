"""What the documentation shows as runnable does run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Example, examples

_EXAMPLES = [example for page in PAGES for example in examples(page)]


def _commands(text: str) -> str:
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda example: f"{example.page}:{example.line}")
def test_marked_examples_run(example: Example, tmp_path: Path) -> None:
    programs = {
        "python": [sys.executable, "-c", example.text],
        "console": ["bash", "-euo", "pipefail", "-c", _commands(example.text)],
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        programs[example.language],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_marked_block_is_found_and_an_unmarked_one_is_not() -> None:
    languages = {example.language for example in _EXAMPLES}
    assert languages <= {"python", "console"}
    assert Path("README.md") in {example.page for example in _EXAMPLES}
