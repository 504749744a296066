"""What the page on a repository of one's own says is done, file by file and line by line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_PAGE: Final = Path(__file__).parents[4] / "docs" / "own-train.md"
_FILE: Final = re.compile(
    r"\*\*`([^`]+)`\*\*[^\n]*\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
_CONSOLE: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _steps(block: str) -> list[tuple[str, list[str]]]:
    """Return a console block's commands, each with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[list[str], str]]]:
    """Follow the page; return the repository, and what was said and printed at each command."""
    root = tmp_path_factory.mktemp("own") / "plum"
    text = _PAGE.read_text(encoding="utf-8")
    for name, content in _FILE.findall(text):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    # A function, since what is run has to end in one shell, which keeps a variable.
    tool = f'torchyard() {{ {sys.executable} -m torchyard "$@"; }}'
    identity = {"NAME": "Ann", "EMAIL": "ann@example.org"}
    names = {f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in identity.items()}
    steps = [step for block in _CONSOLE.findall(text) for step in _steps(block)]
    lines = [tool, *(f"echo '<{at}>'; {words}" for at, (words, _) in enumerate(steps)), "echo '<>'"]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=root,
        env={**os.environ, **names, "COLUMNS": "200", "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = re.split(r"^<\d*>$\n?", done.stdout, flags=re.MULTILINE)[1:-1]
    return root, [(said, part) for (_, said), part in zip(steps, parts, strict=True)]


@pytest.mark.sweep
def test_every_command_prints_what_the_page_says(
    printed: tuple[Path, list[tuple[list[str], str]]],
) -> None:
    _, steps = printed
    assert sum(bool(said) for said, _ in steps) >= 6
    for said, got in steps:
        for line in said:
            assert line in got


def test_it_ends_in_a_signed_release_of_two_files(
    printed: tuple[Path, list[tuple[list[str], str]]],
) -> None:
    root, _ = printed
    folder = root / ".train" / "1.0.0" / "rc1"
    assert sorted(path.name for path in (folder / "dist").iterdir()) == [
        "plum-1.0.0-py3-none-any.whl",
        "plum-1.0.0.tar.gz",
    ]
    assert (folder / "manifest.json").is_file()
    tags = subprocess.run(["git", "tag"], cwd=root, capture_output=True, text=True, check=True)
    assert tags.stdout.split() == ["v1.0.0", "v1.0.0-rc1"]


def test_an_index_that_is_not_declared_is_asked_for_by_name(
    printed: tuple[Path, list[tuple[list[str], str]]],
) -> None:
    root, _ = printed
    words = [sys.executable, "-m", "torchyard", "release", "publish"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True)
    assert done.returncode == 1
    assert "add [indexes.release] to train.toml" in done.stderr
