"""Picks: what a phase lets in, with proof of where it came from, and what is still missing."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from packages.release.tests import foreign
from packages.release.tests.foreign import git, write
from packages.release.tests.prepared import add_candidate
from torchyard_release._cut import _pick
from torchyard_release._cut._pick import PickError, ledger, missing, pick
from torchyard_release._repository._workspace import Workspace

_CUT = datetime.date(2027, 1, 21)
_FINAL = datetime.date(2027, 1, 28)


def _commit(root: Path, name: str, text: str, message: str) -> str:
    write(root, name, text)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", f"--message={message}")
    return git(root, "rev-parse", "HEAD").strip()


@pytest.fixture
def branch(orchard: Path) -> Path:
    """Return a monorepo on its release's branch, with a commit before it left main."""
    path = orchard / "train.toml"
    _commit(orchard, "grow.txt", "1\n2\n3\n4\n5\n", "Grow")
    git(orchard, "switch", "--quiet", "--create", "release/1.4")
    path.write_text(path.read_text().replace("1.4.0.dev0", "1.4.0"))
    git(orchard, "commit", "--quiet", "--all", "--message=Cut 1.4.0")
    return orchard


def _on_main(root: Path, name: str, text: str, message: str) -> str:
    git(root, "switch", "--quiet", "main")
    sha = _commit(root, name, text, message)
    git(root, "switch", "--quiet", "release/1.4")
    return sha


def _state(root: Path) -> tuple[str, str]:
    return git(root, "rev-parse", "HEAD"), git(root, "status", "--porcelain")


def test_a_pick_says_where_it_came_from_and_why(branch: Path) -> None:
    sha = _on_main(branch, "fix.txt", "x\n", "Fix the fix")
    made = pick(Workspace.find(branch), sha, "regression", today=_CUT)
    assert (made.origin, made.criterion, made.same_patch) == (sha, "regression", True)
    message = git(branch, "show", "--no-patch", "--format=%B", "HEAD")
    assert f"(cherry picked from commit {sha})" in message
    assert "Pick-Criterion: regression" in message


@pytest.mark.parametrize(
    ("today", "criterion", "said"),
    [
        (_FINAL, "docs", "no reason to pick in phase 'final', which takes critical"),
        (datetime.date(2020, 1, 1), "critical", "which takes nothing"),
        (_CUT, "nice", "expected one of critical, docs, regression, got 'nice'"),
    ],
)
def test_a_phase_takes_what_it_says(
    branch: Path, today: datetime.date, criterion: str, said: str
) -> None:
    sha = _on_main(branch, "fix.txt", "x\n", "Fix")
    before = _state(branch)
    with pytest.raises(PickError, match=said):
        pick(Workspace.find(branch), sha, criterion, today=today)
    assert _state(branch) == before


def test_a_dispensation_has_a_name_and_a_reason_and_is_recorded(branch: Path) -> None:
    sha = _on_main(branch, "fix.txt", "x\n", "Fix")
    workspace = Workspace.find(branch)
    with pytest.raises(PickError, match="NAME: REASON"):
        pick(workspace, sha, "docs", today=_FINAL, dispensation="because")
    made = pick(workspace, sha, "docs", today=_FINAL, dispensation="Pomona: the page lies")
    assert made.dispensation == "Pomona: the page lies"


def test_the_same_is_not_picked_twice(branch: Path) -> None:
    sha = _on_main(branch, "fix.txt", "x\n", "Fix")
    workspace = Workspace.find(branch)
    pick(workspace, sha, "critical", today=_CUT)
    before = _state(branch)
    with pytest.raises(PickError, match="picked already"):
        pick(workspace, sha, "critical", today=_CUT)
    assert _state(branch) == before


def test_the_same_patch_under_another_name_is_known(branch: Path) -> None:
    _commit(branch, "fix.txt", "x\n", "Fix, made on the branch")
    sha = _on_main(branch, "fix.txt", "x\n", "Fix, made on main")
    with pytest.raises(PickError, match="changes the same as"):
        pick(Workspace.find(branch), sha, "critical", today=_CUT)


def test_only_what_main_has_is_picked(branch: Path) -> None:
    git(branch, "switch", "--quiet", "--create", "topic", "main")
    sha = _commit(branch, "fix.txt", "x\n", "Fix")
    git(branch, "switch", "--quiet", "release/1.4")
    with pytest.raises(PickError, match="expected a commit of main"):
        pick(Workspace.find(branch), sha, "critical", today=_CUT)


def test_a_conflict_leaves_the_branch_as_it_was_and_can_be_resolved_by_hand(branch: Path) -> None:
    _commit(branch, "grow.txt", "1\n2\nbranch\n4\n5\n", "Grow otherwise")
    sha = _on_main(branch, "grow.txt", "1\n2\nmain\n4\n5\n", "Grow on")
    workspace, before = Workspace.find(branch), _state(branch)
    with pytest.raises(PickError, match=r"conflicts in grow\.txt") as caught:
        pick(workspace, sha, "critical", today=_CUT)
    assert "--continue" in caught.value.remedy
    assert _state(branch) == before
    with pytest.raises(Exception, match="returned non-zero"):
        git(branch, "cherry-pick", "-x", sha)
    write(branch, "grow.txt", "1\n2\nboth\n4\n5\n")
    git(branch, "add", "--all")
    git(branch, "-c", "core.editor=true", "cherry-pick", "--continue")
    made = pick(workspace, sha, "critical", today=_CUT)
    assert (made.origin, made.criterion, made.same_patch) == (sha, "critical", False)


def test_killed_between_picking_and_recording_it_is_recorded_by_the_next_run(
    branch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = _on_main(branch, "fix.txt", "x\n", "Fix")
    workspace = Workspace.find(branch)
    cherry_pick = _pick._cherry_pick

    def killed(*words: Any) -> None:
        cherry_pick(*words)
        raise KeyboardInterrupt

    monkeypatch.setattr(_pick, "_cherry_pick", killed)
    with pytest.raises(KeyboardInterrupt):
        pick(workspace, sha, "critical", today=_CUT)
    monkeypatch.undo()
    made = pick(workspace, sha, "critical", today=_CUT)
    assert [(item.origin, item.criterion) for item in ledger(workspace)][1:] == [(sha, "critical")]
    assert made.same_patch


def test_a_revert_of_something_that_the_branch_has_is_missing_until_it_is_picked(
    branch: Path,
) -> None:
    grown = git(branch, "rev-parse", "main").strip()
    git(branch, "switch", "--quiet", "main")
    git(branch, "revert", "--no-edit", grown)
    revert = git(branch, "rev-parse", "HEAD").strip()
    git(branch, "switch", "--quiet", "release/1.4")
    workspace = Workspace.find(branch)
    (found,) = missing(workspace)
    assert (found.sha, found.kind, found.target) == (revert, "revert", grown)
    assert "is-ancestor" in found.proof
    assert not missing(workspace, [revert])
    pick(workspace, revert, "critical", today=_CUT)
    assert not missing(workspace)


def test_a_revert_of_what_the_branch_never_had_is_not_missing(branch: Path) -> None:
    _on_main(branch, "new.txt", "x\n", "Something new")
    git(branch, "switch", "--quiet", "main")
    git(branch, "revert", "--no-edit", "HEAD")
    git(branch, "switch", "--quiet", "release/1.4")
    assert not missing(Workspace.find(branch))


def test_a_revert_and_a_fix_of_a_pick_are_missing(branch: Path) -> None:
    sha = _on_main(branch, "fix.txt", "x\n", "Fix")
    pick(Workspace.find(branch), sha, "critical", today=_CUT)
    better = _on_main(branch, "fix.txt", "y\n", f"Fix it right\n\nFixes: {sha[:12]}")
    git(branch, "switch", "--quiet", "main")
    git(branch, "revert", "--no-edit", better)
    git(branch, "switch", "--quiet", "release/1.4")
    found = missing(Workspace.find(branch))
    # The revert is of the fix, which the branch has not got.
    assert [(item.sha, item.kind, item.target) for item in found] == [(better, "fix", sha)]
    assert "as pick" in found[0].proof


def test_the_ledger_says_which_candidate_has_what(branch: Path) -> None:
    first = _on_main(branch, "fix.txt", "x\n", "Fix")
    workspace = Workspace.find(branch)
    pick(workspace, first, "critical", today=_CUT)
    add_candidate(branch)
    second = _on_main(branch, "more.txt", "x\n", "More")
    pick(workspace, second, "critical", today=_CUT)
    assert [(item.origin, item.candidate) for item in ledger(workspace)] == [
        ("", "rc1"),
        (first, "rc1"),
        (second, ""),
    ]


def test_a_dirty_tree_and_another_branch_are_refused(branch: Path) -> None:
    sha = _on_main(branch, "fix.txt", "x\n", "Fix")
    write(branch, "dirt.txt", "x")
    with pytest.raises(Exception, match="changes that no commit holds"):
        pick(Workspace.find(branch), sha, "critical", today=_CUT)
    (branch / "dirt.txt").unlink()
    git(branch, "switch", "--quiet", "main")
    with pytest.raises(PickError, match=r"expected release/1\.4 checked out"):
        pick(Workspace.find(branch), sha, "critical", today=_CUT)


def test_the_command_shows_the_ledger_and_is_red_while_something_is_missing(
    branch: Path, release: Callable[..., Result]
) -> None:
    git(branch, "switch", "--quiet", "main")
    git(branch, "revert", "--no-edit", "HEAD")
    sha = git(branch, "rev-parse", "HEAD").strip()
    git(branch, "switch", "--quiet", "release/1.4")
    result = release("pick")
    assert result.exit_code == 3
    assert "missing revert" in result.output
    assert release("pick", "--decline", sha, "--reason", "harmless").exit_code == 0
    result = release("pick", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["declined"] == [sha]
    assert foreign.git(branch, "status", "--porcelain") == ""
