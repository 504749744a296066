"""A second copy that differs is named, and rewritten where that is possible."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from packages.release.tests import foreign
from torchyard_release._copies._check import with_version
from torchyard_release._copies._runbook import read_runbook
from torchyard_release._errors import WorkspaceError


@pytest.fixture
def agreed(orchard: Path, release: Callable[..., Result]) -> Path:
    """Return the monorepo with everything derived."""
    result = release("check", "--write", "--no-nox")
    assert result.exit_code == 0, result.output
    return orchard


def _replace(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text()
    assert old in text
    foreign.write(root, name, text.replace(old, new, 1))


def test_blocks_are_derived_and_then_nothing_differs(
    orchard: Path, release_json: Callable[..., Any]
) -> None:
    before = release_json("check", "--no-nox", code=3)
    assert {drift["path"] for drift in before["drifts"]} == {"README.md", "RELEASE.md"}
    after = release_json("check", "--write", "--no-nox")
    assert after["drifts"] == []
    assert after["compared"] > 15
    assert sorted(after["written"]) == ["README.md", "RELEASE.md"]
    row = "| `packages/press` | orchard-press | 1.4.0.dev0 | sdist, `py3-none-"
    assert row in (orchard / "README.md").read_text()
    assert (
        "| cut | 2027-01-20 | 2027-03-24 | 2027-05-19 | the branch"
        in (orchard / "RELEASE.md").read_text()
    )
    assert release_json("check", "--no-nox")["drifts"] == []


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("packages/press/pyproject.toml", '"1.4.0.dev0"', '"1.3.0"', "version: '1.3.0'"),
        ("packages/press/pyproject.toml", '">=3.11"', '">=3.8"', "requires-python: '>=3.8'"),
        (
            "packages/shop/pyproject.toml",
            "orchard-press==1.4.0.dev0",
            "orchard-press>=1",
            "dependencies: orchard-press>=1, declared: orchard-press==1.4.0.dev0",
        ),
        (
            "packages/shop/pyproject.toml",
            "orchard-press==1.4.0.dev0",
            "orchard_press[fast] >= 1; python_version > '3'",
            "dependencies: orchard_press[fast] >= 1; python_version > '3', declared: orch",
        ),
        ("packages/orchard/src/orchard/_version.py", "1.4.0.dev0", "1.4.1", "__version__: 1.4.1"),
        ("README.md", "orchard-shop==1.4.0.dev0", "orchard-shop==1.3.9", "orchard-shop: 1.3.9"),
        ("README.md", "| orchard-press | 1.4.0", "| orchard-press | 9.4.0", "block 'packages'"),
        ("RELEASE.md", "2027-01-20", "2027-01-21", "block 'calendar': another text"),
    ],
)
def test_a_copy_that_drifts_is_named_and_derived(
    agreed: Path, release: Callable[..., Result], name: str, old: str, new: str, said: str
) -> None:
    wanted = (agreed / name).read_text()
    _replace(agreed, name, old, new)
    result = release("check", "--no-nox")
    assert result.exit_code == 3
    assert f"{name}: {said}" in result.output
    assert "`torchyard release check --write` derives it" in result.output
    assert release("check", "--no-nox", "--write").exit_code == 0
    if "[fast]" not in new:
        assert (agreed / name).read_text() == wanted


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "packages/shop/pyproject.toml",
            '"orchard==1.4.0.dev0", ',
            "",
            "siblings that it requires: orchard-press, declared: orchard, orchard-press; correct",
        ),
        ("packages/shop/pyproject.toml", '"orchard-shop"', '"orchard-stall"', "rename one of them"),
        ("packages/shop/pyproject.toml", '"orchard==1', '"orchard=1', "declared: a requirement"),
        (
            "packages/shop/src/orchard_shop/__init__.py",
            "def main",
            '__version__ = "1"\n\ndef main',
            "__version__: a version, declared: none; list it in `version_files`",
        ),
        (
            "packages/orchard/src/orchard/_version.py",
            "__version__",
            "version",
            "0 lines `__version__ = ...`, declared: 1.4.0.dev0; write the one line",
        ),
        (
            "packages/shop/pyproject.toml",
            'version = "1.4.0.dev0"',
            'dynamic = ["version"]',
            "version: dynamic, declared: a file that its builder reads; list that file in `vers",
        ),
        (
            "packages/shop/pyproject.toml",
            '"orchard==1',
            '"torch>=2", "orchard==1',
            "torch>=2, declared: no torch; give the package its `torch` in train.toml",
        ),
        ("README.md", "| orchard | `packages/orchard` |\n", "", "table of packages: none, decl"),
        ("README.md", "train: packages", "train: prices", "block: prices, declared: one of cal"),
        ("RELEASE.md", "release cut", "release cutt", "`torchyard release cutt`, declared: a com"),
        ("RELEASE.md", "release cut", "release cut --now", "`torchyard release cut` has no --now"),
        ("RELEASE.md", "2. Cut", "4. Cut", "step 4: out of order, declared: 2; renumber"),
        ("RELEASE.md", "2. Cut: `torchyard release cut`", "2. Cut", "step 2: no command, declar"),
        (
            "train.toml",
            'folder = "packages/shop"',
            'torch = ">=2"\nfolder = "packages/shop"',
            "no torch",
        ),
    ],
)
def test_what_a_person_must_fix_is_said(
    agreed: Path, release: Callable[..., Result], name: str, old: str, new: str, said: str
) -> None:
    _replace(agreed, name, old, new)
    result = release("check", "--no-nox")
    assert result.exit_code == 3
    assert said in result.output
    assert release("check", "--no-nox", "--write").exit_code == 3


def test_a_package_that_no_train_takes_is_named(
    agreed: Path, release: Callable[..., Result]
) -> None:
    foreign.write(agreed, "packages/cider/pyproject.toml", '[project]\nname = "orchard-cider"\n')
    assert "add [packages.orchard-cider] to train.toml" in release("check", "--no-nox").output


def test_a_torch_that_the_train_is_not_about_is_named(
    agreed: Path, release: Callable[..., Result]
) -> None:
    _replace(agreed, "train.toml", "[hardware]", '[torch]\nminimum = "2.13.0"\n\n[hardware]')
    foreign.write(agreed, "constraints.txt", "torch==2.12.0\n")
    output = release("check", "--no-nox").output
    assert "constraints.txt: torch: 2.12.0, declared: torch>=2.13.0" in output


def test_nox_has_a_session_for_every_package_and_target(
    agreed: Path, release: Callable[..., Result]
) -> None:
    assert release("check").exit_code == 0
    _replace(agreed, "noxfile.py", '"pkg-shop"', '"pkg-stall"')
    _replace(agreed, "noxfile.py", "hw-cuda", "hw-tractor")
    output = release("check").output
    assert "none pkg-shop, declared: pkg-shop; give a session that tag" in output
    assert "none hw-cuda, declared: hw-cuda" in output
    assert "tags: pkg-stall, declared: none such" in output
    assert "tags: hw-tractor, declared: none such" in output


def test_a_noxfile_that_breaks_is_no_agreement(
    agreed: Path, release: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign.write(agreed, "noxfile.py", "raise RuntimeError('frost')\n")
    assert "frost" in release("check").output
    monkeypatch.setattr("torchyard_release._copies._matrix.find_spec", lambda name: None)
    result = release("check")
    assert result.exit_code == 3
    assert "unknown, because nox is not installed" in result.output


def test_an_example_of_a_block_is_left_alone(agreed: Path, release: Callable[..., Result]) -> None:
    text = "```\n<!-- train: packages -->\n<!-- train: end -->\n```\n"
    foreign.write(agreed, "docs.md", text)
    assert release("check", "--no-nox").exit_code == 0


def test_another_version_keeps_the_form_of_the_file() -> None:
    text = foreign.TRAIN
    after = with_version(text, "1.5.0", {"orchard-shop": 3, "orchard": None})
    changed = set(after.splitlines()) ^ set(text.splitlines())
    assert changed == {
        'version = "1.4.0.dev0"  # what grows here',
        'version = "1.5.0"  # what grows here',
        "patch = 3",
    }
    assert with_version(after, "1.4.0.dev0", {"orchard-shop": None}) == text


def test_a_runbook_is_numbered_steps_with_commands(tmp_path: Path) -> None:
    path = tmp_path / "RELEASE.md"
    path.write_text("# R\n\n1. Look: `git status`,\n   then `nox -s lint`.\n2. `X.Y` is a name.\n")
    first, second = read_runbook(path)
    assert first.commands == ("git status", "nox -s lint")
    assert (second.number, second.commands) == (2, ())
    path.write_text("nothing\n")
    with pytest.raises(WorkspaceError, match="it has no numbered steps"):
        read_runbook(path)


def test_the_calendar_says_what_is_due(release_json: Callable[..., Any]) -> None:
    data = release_json("plan", "--today", "2027-01-27")
    assert (data["phase"], data["departs"]) == ("final", ["2027-02-03", "2027-04-07", "2027-06-02"])
    assert [row["state"] for row in data["phases"]] == ["past", "past", "now", "ahead"]
    assert data["packages"] == ["orchard", "orchard-press", "orchard-shop"]


def test_the_calendar_is_shown_to_a_person(release: Callable[..., Result]) -> None:
    output = release("plan", "--today", "2027-01-27").output
    assert re.search(
        r"final +2027-01-27 +today +only what would stop the train; picks: crit", output
    )
    assert "due now until 2027-02-03: only what would stop the train" in output
    assert "nothing is due before 2027-01-06" in release("plan", "--today", "2027-01-01").output
