"""One noun per file, and nothing in a file that belongs to one machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, files

_CODE = {".c", ".cc", ".cpp", ".h", ".py"}
_LIMIT = 450
# Path -> why it is longer. Empty is the aim.
_LONGER: dict[str, str] = {"noxfile.py": "nox reads one file"}
_DRAWERS = {"common", "helpers", "misc", "shared", "util", "utils"}
# Written in pieces, so that this file does not hold what it looks for.
_FOLDERS = ("far" + "m", "hom" + "e", "roo" + "t", "User" + "s", "wor" + "k")
_HOSTS = (
    "deb.debia" + "n",
    "download.pytorc" + "h",
    "npmj" + "s",
    "pypi.or" + "g",
    "pythonhoste" + "d",
)
_MACHINE = re.compile(rf"(?<![\w.])/(?:{'|'.join(_FOLDERS)})/|{'|'.join(map(re.escape, _HOSTS))}")


@pytest.mark.parametrize("path", [path for path in files() if path.suffix in _CODE], ids=str)
def test_code_files_are_short(path: Path) -> None:
    if path.as_posix() in _LONGER:
        return
    lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert lines < _LIMIT, f"{path} has {lines} lines: one noun per file, or a reason in _LONGER"


def test_longer_files_are_still_longer() -> None:
    outlived = [
        name
        for name in _LONGER
        if not (ROOT / name).is_file() or len((ROOT / name).read_text().splitlines()) < _LIMIT
    ]
    assert not outlived


def test_no_file_is_a_drawer() -> None:
    drawers = [
        path
        for path in files()
        if path.suffix in _CODE
        and ({part.lower().strip("_") for part in path.with_suffix("").parts} & _DRAWERS)
    ]
    assert not drawers


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in files():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if _MACHINE.search(line)
        ]
    assert not found, "\n".join(found)
