"""One noun per file, and nothing in a file that belongs to one machine."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, files

_CODE = {".c", ".cc", ".cpp", ".h", ".inc", ".py", ".pyi"}
# As CONTRIBUTING.md says.
_LINES = 400
_FILES = 15
_EXCEPTIONS = tomllib.loads((Path(__file__).parent / "exceptions.toml").read_text("utf-8"))
_LONGER: dict[str, str] = _EXCEPTIONS["longer"]
_FULLER: dict[str, int] = _EXCEPTIONS["fuller"]
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
# A release says to which public index it goes.
_UPLOADED = (
    *("train.toml", ".github/workflows/release.yml", "docs/release.md"),
    "packages/release/tests/copies/test_workflows.py",
)
_PUBLIC = re.compile(r"https://(test\.|upload\.|docs\.)?pypi\.or" + r"g/")


def _lines(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def _side_by_side() -> Counter[str]:
    """Return the number of code files of each folder; what only marks a package is none."""
    return Counter(
        path.parent.as_posix()
        for path in files()
        if path.suffix in _CODE and path.name != "__init__.py"
    )


@pytest.mark.parametrize("path", [path for path in files() if path.suffix in _CODE], ids=str)
def test_code_files_are_short(path: Path) -> None:
    lines = _lines(path)
    assert lines <= _LINES or path.as_posix() in _LONGER, f"{path} has {lines}: one noun per file"


@pytest.mark.parametrize("folder", sorted(_side_by_side()))
def test_folders_are_small(folder: str) -> None:
    most = _FULLER.get(folder, _FILES)
    assert _side_by_side()[folder] <= most, f"{folder}: what belongs together goes into a folder"


def test_the_limits_are_those_that_contributors_read() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"at most {_LINES} lines" in text
    assert f"at most {_FILES} code files" in text


def test_no_exception_has_outlived_its_reason() -> None:
    short = [
        name for name in _LONGER if not (ROOT / name).is_file() or _lines(Path(name)) <= _LINES
    ]
    small = [name for name in _FULLER if _side_by_side()[name] <= _FILES]
    assert not short
    assert not small


def test_no_file_is_a_drawer() -> None:
    drawers = [
        path
        for path in files()
        if path.suffix in _CODE
        and ({part.lower().strip("_") for part in path.with_suffix("").parts} & _DRAWERS)
    ]
    assert not drawers


def test_pytest_enters_every_folder_of_tests(pytestconfig: pytest.Config) -> None:
    """A folder whose name pytest passes over, such as build, would hide its tests in silence."""
    passed_over = pytestconfig.getini("norecursedirs")
    hidden = [
        path
        for path in files()
        if path.name.startswith("test_")
        and path.suffix == ".py"
        and any(fnmatch(part, name) for part in path.parts[:-1] for name in passed_over)
    ]
    assert passed_over
    assert not hidden


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in files():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if path.as_posix() in _UPLOADED:
            text = _PUBLIC.sub("", text)
        found += [
            f"{path}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if _MACHINE.search(line)
        ]
    assert not found, "\n".join(found)
