"""Changelog fragments name what they are about and read like release notes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.architecture.tree import PACKAGES, ROOT, files

_FOLDER = Path("changelog.d")
_FRAGMENTS = tuple(
    path
    for path in files()
    if path.parent == _FOLDER and path.name not in {"README.md", "template.md.jinja"}
)
_TYPES = {
    kind["directory"]
    for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
}
_SUBJECTS = {package.folder.name for package in PACKAGES} | {"workspace"}


@pytest.mark.parametrize("fragment", _FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_names_its_package_and_type(fragment: Path) -> None:
    change, package, kind = fragment.stem.split(".")
    assert change
    assert package in _SUBJECTS
    assert kind in _TYPES


@pytest.mark.parametrize("fragment", _FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_one_line(fragment: Path) -> None:
    text = (ROOT / fragment).read_text(encoding="utf-8")
    assert text.strip().endswith(".")
    assert len(text.strip().splitlines()) == 1
