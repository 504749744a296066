"""An audit finds what the index has against what was signed and tagged; a yank is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packages.release.tests.wheels import write_wheel
from torchyard_release._audit._audit import compare_files, compare_tags, install_again, yank_plan
from torchyard_release._errors import ReleaseError
from torchyard_release._index._folder import write_index, yank
from torchyard_release._index._server import IndexServer
from torchyard_release._index._upload import Index

_PROJECTS = ("base", "middle", "top")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexServer]:
    """Serve 1.0.0 and 1.1.0 of base; middle requires exactly 1.1.0, top any."""
    store = tmp_path / "index" / "files"
    write_wheel(store, "base", "1.0.0")
    write_wheel(store, "base", "1.1.0")
    write_wheel(store, "middle", "1.1.0", requires=["base==1.1.0"])
    write_wheel(store, "top", "1.1.0", requires=["base>=1.0"])
    with IndexServer(tmp_path / "index") as server:
        yield server


def _remote(index: IndexServer) -> Index:
    return Index(index.legacy, index.simple)


def _signed(index: IndexServer) -> dict[str, str]:
    remote = _remote(index)
    return {
        name: file.sha256
        for project in _PROJECTS
        for name, file in remote.listed(project).items()
        if "-1.1.0-" in name
    }


def _wrong(index: IndexServer, files: dict[str, str]) -> dict[str, str]:
    found = compare_files(_remote(index), files, _PROJECTS, ["1.1.0"])
    assert found
    return {item.about: item.text for item in found if not item.fine}


def test_an_index_that_has_what_was_signed_is_fine(index: IndexServer) -> None:
    assert _wrong(index, _signed(index)) == {}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda store: (store / "top-1.1.0-py3-none-any.whl").unlink(), "not on the index"),
        (lambda store: write_wheel(store, "top", "1.1.0", text="X = 2\n"), "signed was"),
        (
            lambda store: (store / "top-1.1.0-py3-none-any.whl").rename(
                store / "top-1.1.0-py2.py3-none-any.whl"
            ),
            "nobody signed it",
        ),
    ],
    ids=["missing", "other bytes", "extra"],
)
def test_what_differs_is_named(
    index: IndexServer, spoil: Callable[[Path], object], said: str
) -> None:
    files = _signed(index)
    spoil(index.folder / "files")
    write_index(index.folder)
    assert any(said in text for text in _wrong(index, files).values())


def test_a_version_without_a_tag_and_a_release_that_is_gone_are_named(index: IndexServer) -> None:
    vouched = {"base": ["0.9.0", "1.0.0"], "middle": ["1.1.0"], "top": ["1.1.0"]}
    found = compare_tags(_remote(index), vouched, ["v1.0.0", "v1.1.0-rc1", "not-a-version"])
    wrong = {item.about: item.text for item in found if not item.fine}
    assert set(wrong) == {"base 0.9.0", "base 1.1.0"}
    assert "without a tag" in wrong["base 1.1.0"]
    assert "not on the index any more" in wrong["base 0.9.0"]
    tagged = compare_tags(_remote(index), {**vouched, "base": []}, ["v1.0.0", "v1.1.0"])
    assert all(item.fine for item in tagged)


def test_a_yank_names_what_it_strands_and_what_replaces_it(index: IndexServer) -> None:
    plan = yank_plan(_remote(index), _PROJECTS, "Base", "1.1.0")
    assert (plan.files, plan.stranded, plan.replacement) == (
        ("base-1.1.0-py3-none-any.whl",),
        ("middle 1.1.0",),
        "1.0.0",
    )
    assert [step for step in plan.steps() if step.startswith("yank middle 1.1.0 as well")]
    yank(index.folder, {"base-1.0.0-py3-none-any.whl": "bad"})
    alone = yank_plan(_remote(index), _PROJECTS, "base", "1.1.0")
    assert (alone.stranded, alone.replacement) == (("middle 1.1.0", "top 1.1.0"), "")
    assert "publish a replacement" in alone.steps()[0]


def test_a_version_that_is_not_there_is_not_yanked(index: IndexServer) -> None:
    with pytest.raises(ReleaseError, match=r"it has 1\.0\.0, 1\.1\.0"):
        yank_plan(_remote(index), _PROJECTS, "base", "7.0")


@pytest.mark.sweep
def test_releases_are_installed_again_and_index_rot_is_found(
    index: IndexServer, tmp_path: Path
) -> None:
    write_wheel(index.folder / "files", "zz-rotten", "1.0.0", requires=["zz-gone==1"])
    write_wheel(index.folder / "files", "zz-fine", "1.0.0")
    write_index(index.folder)
    found = install_again(tmp_path, index.simple, ["zz-fine==1.0.0", "zz-rotten==1.0.0"])
    assert [item.fine for item in found] == [True, False]
    assert "zz-gone" in found[1].text
    assert replace(found[0], text="").about == "zz-fine==1.0.0"
