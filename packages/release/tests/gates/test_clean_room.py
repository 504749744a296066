"""A clean room finds what a checkout hides."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages.release.tests.wheels import write_wheel
from torchyard_release._gates._clean_room import CleanRoom, Installed, InstallError, strangers


@pytest.fixture
def room(tmp_path: Path) -> CleanRoom:
    return CleanRoom(tmp_path / "room").make()


def _wheel(folder: Path, name: str, **more: str) -> str:
    return str(folder / write_wheel(folder, name, "1.0.0", **more)[0])  # type: ignore[arg-type]


def test_what_cannot_be_imported_is_named_with_its_reason(room: CleanRoom, tmp_path: Path) -> None:
    fine = _wheel(tmp_path, "zz-fine")
    broken = _wheel(tmp_path, "zz-broken", text="import zz_not_there\n")
    room.install(fine, broken)
    wrong = room.smoke(["zz-fine", "zz-broken", "zz-absent"])
    assert set(wrong) == {"zz-broken", "zz-absent"}
    assert "No module named 'zz_not_there'" in wrong["zz-broken"][0]
    assert wrong["zz-absent"] == ["it is not installed"]


def test_a_package_that_ends_python_is_named(room: CleanRoom, tmp_path: Path) -> None:
    room.install(_wheel(tmp_path, "zz-deadly", text="import os; os._exit(3)\n"))
    assert "ended Python (3)" in room.smoke(["zz-deadly"])["zz-deadly"][0]


def test_a_module_from_elsewhere_is_found(room: CleanRoom, tmp_path: Path) -> None:
    room.install(_wheel(tmp_path, "zz-fine"))
    elsewhere = tmp_path / "checkout" / "zz_fine"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").write_text("")
    # First on the path, as a checkout is that a test is started in.
    (room.site / "a.pth").write_text(f"import sys; sys.path.insert(0, {str(elsewhere.parent)!r})\n")
    assert "it comes from" in room.smoke(["zz-fine"])["zz-fine"][0]


def test_what_cannot_be_installed_says_so_in_the_installers_words(
    room: CleanRoom, tmp_path: Path
) -> None:
    name, _ = write_wheel(tmp_path, "zz-top", "1.0.0", requires=["zz-base>=2"])
    with pytest.raises(InstallError, match="zz-base"):
        room.install(str(tmp_path / name))


@pytest.mark.sweep
def test_a_room_over_another_sees_what_is_in_it_and_leaves_it_alone(tmp_path: Path) -> None:
    base = CleanRoom(tmp_path / "base").make()
    base.install(_wheel(tmp_path, "zz-base"))
    name, _ = write_wheel(tmp_path, "zz-top", "1.0.0", requires=["zz-base"])
    room = CleanRoom(tmp_path / "room", base).make()
    assert [item.name for item in room.install(str(tmp_path / name))] == ["zz-top"]
    assert room.check() == ()
    assert room.smoke(["zz-top"]) == {}
    assert not (base.site / "zz_top").exists()


def test_bytes_that_are_not_the_candidates_are_named() -> None:
    ours = Installed("base", "1.0.0", "http://127.0.0.1/base.whl", "1" * 64)
    theirs = Installed("base", "1.0.0", "https://index.example/base.whl", "2" * 64)
    other = Installed("click", "8.0", "https://index.example/click.whl", "3" * 64)
    assert strangers([ours, other], ["base"], {"base.whl": "1" * 64}) == []
    (found,) = strangers([theirs], ["base"], {"base.whl": "1" * 64})
    assert "index.example" in found
