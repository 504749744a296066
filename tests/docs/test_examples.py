"""What the documentation shows as runnable does run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Example, examples
from tests.docs.running import run_python

_EXAMPLES = [example for page in PAGES for example in examples(page)]


def _commands(text: str) -> str:
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))


# What a newcomer reads first. `nox -s docs-check` runs the others too.
_FIRST = ("README.md", "docs/getting-started.md")


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            example,
            id=f"{example.page}:{example.line}",
            marks=[] if example.page.as_posix() in _FIRST else [pytest.mark.sweep],
        )
        for example in _EXAMPLES
    ],
)
def test_marked_examples_run(example: Example, tmp_path: Path) -> None:
    if example.language == "python":
        status, printed = run_python(example.text, tmp_path)
        assert status == 0, printed
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", _commands(example.text)],
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


@pytest.mark.parametrize(
    ("text", "said"),
    [("print('seen'); 1 / 0", "ZeroDivisionError"), ("import os; os._exit(3)", "")],
)
def test_an_example_that_fails_is_found(text: str, said: str, tmp_path: Path) -> None:
    status, printed = run_python(text, tmp_path)
    assert status != 0
    assert said in printed
