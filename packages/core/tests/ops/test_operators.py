"""What of a package's sources its ops are named after."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard import sources_digest

PACKAGES = ["some_ops", "some_programs"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for package in PACKAGES:
        (tmp_path / package / "inner").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "inner" / "_ops.py").write_text("first = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("some_ops/inner/_ops.py", "first = 2\n"),
        ("some_ops/inner/_more.py", ""),
        ("some_programs/__init__.py", "first = 1\n"),
    ],
    ids=["edited", "added", "of the other package"],
)
def test_any_change_of_a_source_gives_another_name(folder: Path, path: str, text: str) -> None:
    before = sources_digest(PACKAGES)
    assert sources_digest(PACKAGES) == before
    (folder / path).write_text(text)
    assert sources_digest(PACKAGES) != before


def test_what_is_moved_or_renamed_gives_another_name(folder: Path) -> None:
    before = sources_digest(PACKAGES)
    source = folder / "some_ops" / "inner" / "_ops.py"
    source.rename(source.with_name("_kernels.py"))
    assert sources_digest(PACKAGES) != before


def test_what_is_no_source_changes_no_name(folder: Path) -> None:
    before = sources_digest(PACKAGES)
    (folder / "some_ops" / "__pycache__").mkdir()
    (folder / "some_ops" / "__pycache__" / "_ops.pyc").write_bytes(b"compiled")
    (folder / "some_ops" / "torchyard.toml").write_text("")
    assert sources_digest(PACKAGES) == before


def test_nothing_of_the_package_is_imported(folder: Path) -> None:
    sources_digest(PACKAGES)
    assert not set(PACKAGES) & set(sys.modules)


def test_a_package_without_sources_is_never_the_same(folder: Path) -> None:
    for source in (folder / "some_ops").rglob("*.py"):
        source.unlink()
    assert sources_digest(PACKAGES) != sources_digest(PACKAGES)


@pytest.mark.parametrize("given", ["some_ops", [""], [3], None])
def test_what_is_no_list_of_names_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="sources_digest: packages"):
        sources_digest(given)
