"""git is asked, and what it refuses is said with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages.release.tests import foreign
from torchyard_release._errors import GitError
from torchyard_release._repository._git import Git


def test_a_branch_a_commit_and_an_identity_are_read(orchard: Path) -> None:
    git = Git(orchard)
    assert git.branch() == "main"
    assert len(git.commit()) == 40
    assert git.actor() == "Pomona <pomona@orchard.example>"
    assert git.time("HEAD") == 1_799_056_800


def test_a_detached_head_is_refused(orchard: Path) -> None:
    foreign.git(orchard, "switch", "--quiet", "--detach")
    with pytest.raises(GitError, match=r"HEAD is detached at \w{12}.*`git switch main`"):
        Git(orchard).branch()


def test_changes_are_named(orchard: Path) -> None:
    git = Git(orchard)
    git.require_clean()
    foreign.write(orchard, "README.md", "changed")
    foreign.write(orchard, "new file", "untracked")
    with pytest.raises(GitError, match=r'no commit holds: README.md, "new file"; commit them'):
        git.require_clean()


def test_an_unknown_revision_is_named(orchard: Path) -> None:
    with pytest.raises(GitError, match="v9: no such revision"):
        Git(orchard).commit("v9")


def test_a_command_that_fails_says_what_git_said(orchard: Path) -> None:
    with pytest.raises(GitError, match=r"`git switch nowhere` ended with 128 and said: fatal"):
        Git(orchard).run("switch", "nowhere")


def test_branches_tags_and_files_are_found(orchard: Path) -> None:
    git = Git(orchard)
    foreign.git(orchard, "tag", "v1")
    foreign.write(orchard, "ümlaut file", "")
    foreign.write(orchard, "dist/ignored", "")
    assert git.has_tag("v1")
    assert not git.has_tag("main")
    assert git.has_branch("main")
    assert not git.has_branch("v1")
    assert "ümlaut file" in git.files()
    assert "dist/ignored" not in git.files()


def test_an_export_holds_what_a_commit_tracks_and_nothing_else(
    orchard: Path, tmp_path: Path
) -> None:
    git = Git(orchard)
    tracked = git.files()
    foreign.write(orchard, "stray.py", "left lying about")
    foreign.write(orchard, "README.md", "changed since")
    git.export("HEAD", tmp_path / "out")
    found = sorted(
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    )
    assert found == sorted(tracked)
    assert "changed since" not in (tmp_path / "out" / "README.md").read_text()


def test_what_the_callers_environment_says_of_git_does_not_matter(
    orchard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert Git(orchard).branch() == "main"
