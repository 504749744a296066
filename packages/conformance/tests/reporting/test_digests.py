"""A certificate says which files it is about."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

import torchyard
from torchyard_conformance._reports._digests import digests


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a site folder with a distribution, as an installer leaves it."""
    files = {
        "yard_digests/__init__.py": "",
        "yard_digests/kernel.py": "answer = 42\n",
        "yard_digests/__pycache__/kernel.pyc": "old",
        "yard_digests-1.0.dist-info/METADATA": "Name: yard-digests\nVersion: 1.0\n",
        "yard_digests-1.0.dist-info/INSTALLER": "pip\n",
        "yard_digests-1.0.dist-info/direct_url.json": '{"url": "file:///somewhere"}',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    record = tmp_path / "yard_digests-1.0.dist-info" / "RECORD"
    record.write_text("".join(f"{name},,\n" for name in [*files, "../../bin/yard", "gone.py"]))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_every_file_that_was_installed_counts_and_nothing_that_an_installer_adds(
    yard: Path,
) -> None:
    found = digests("yard-digests", "yard_digests")
    assert list(found) == [
        "yard_digests-1.0.dist-info/METADATA",
        "yard_digests/__init__.py",
        "yard_digests/kernel.py",
    ]
    assert found["yard_digests/kernel.py"] == hashlib.sha256(b"answer = 42\n").hexdigest()


def test_one_changed_file_is_seen(yard: Path) -> None:
    before = digests("yard-digests", "yard_digests")
    (yard / "yard_digests" / "kernel.py").write_text("answer = 43\n")
    after = digests("yard-digests", "yard_digests")
    assert [name for name in before if before[name] != after[name]] == ["yard_digests/kernel.py"]


def test_what_somebody_added_to_the_package_is_seen(yard: Path) -> None:
    before = digests("yard-digests", "yard_digests")
    (yard / "yard_digests" / "patch.py").write_text("answer = 43\n")
    assert digests("yard-digests", "yard_digests").keys() - before.keys() == {
        "yard_digests/patch.py"
    }


def test_what_is_installed_to_be_edited_is_taken_from_where_it_is(yard: Path) -> None:
    record = yard / "yard_digests-1.0.dist-info" / "RECORD"
    record.write_text("yard_digests-1.0.dist-info/METADATA,,\n")
    assert "yard_digests/kernel.py" in digests("yard-digests", "yard_digests")
    assert not any("__pycache__" in name for name in digests("yard-digests", "yard_digests"))


def test_a_distribution_that_is_really_installed_is_found() -> None:
    found = digests("torchyard", "torchyard")
    assert "torchyard/__init__.py" in found
    assert found["torchyard/__init__.py"] == (
        hashlib.sha256(Path(torchyard.__file__).read_bytes()).hexdigest()
    )


def test_what_is_not_installed_has_no_files() -> None:
    assert digests("yard-nowhere", "yard_nowhere") == {}
    assert digests("", "") == {}
    assert "yard_nowhere" not in sys.modules
