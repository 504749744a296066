"""Bisecting finds the commit, past what cannot be built and what fails now and then."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from packages.release.tests.foreign import git, write
from torchyard_release._audit._bisect import Judgement, bisect
from torchyard_release._errors import ReleaseError
from torchyard_release._repository._git import Git

_ORACLE = (sys.executable, "oracle.py")
_JUDGE = """\
import pathlib

state, number = pathlib.Path("state.txt").read_text().split()
seen = pathlib.Path(f"seen{number}")
if state == "flaky" and not seen.exists():
    seen.touch()
    raise SystemExit(1)
raise SystemExit({"broken": 1, "unknown": 125}.get(state, 0))
"""


def _commits(root: Path, *states: str) -> list[str]:
    """Commit a state each: fine, broken, flaky, unbuildable, or that nobody can say."""
    found = []
    for number, state in enumerate(states):
        write(root, "state.txt", f"{state} {number}\n")
        write(root, "oracle.py", _JUDGE)
        build = "raise SystemExit(open('state.txt').read().startswith('unbuildable'))\n"
        write(root, "build.py", build)
        git(root, "add", "--all")
        git(root, "commit", "--quiet", f"--message={state} {number}")
        found.append(git(root, "rev-parse", "HEAD").strip())
    return found


@pytest.mark.parametrize("first", [1, 2, 3, 5])
def test_the_first_bad_commit_is_found(orchard: Path, first: int) -> None:
    shas = _commits(orchard, *["fine"] * first, *["broken"] * (6 - first))
    before = git(orchard, "status", "--porcelain"), git(orchard, "rev-parse", "HEAD")
    found = bisect(Git(orchard), shas[0], shas[-1], _ORACLE)
    assert found.culprits == (shas[first],)
    assert (git(orchard, "status", "--porcelain"), git(orchard, "rev-parse", "HEAD")) == before
    assert git(orchard, "worktree", "list").count("\n") == 1


def test_what_fails_now_and_then_is_tried_again_and_is_not_blamed(orchard: Path) -> None:
    shas = _commits(orchard, "fine", "flaky", "flaky", "broken", "broken")
    found = bisect(Git(orchard), shas[0], shas[-1], _ORACLE)
    assert found.culprits == (shas[3],)
    assert any("flaky" in tried.text for tried in found.tried)


def test_what_cannot_be_built_is_skipped(orchard: Path) -> None:
    shas = _commits(orchard, "fine", "fine", "unbuildable", "broken", "broken", "broken")
    build = (sys.executable, "build.py")
    found = bisect(Git(orchard), shas[0], shas[-1], _ORACLE, build=build, retries=0)
    assert set(found.culprits) >= {shas[3]}
    assert set(found.culprits) <= {shas[2], shas[3]}
    if shas[2] in {tried.sha for tried in found.tried}:
        assert {t.judgement for t in found.tried if t.sha == shas[2]} == {Judgement.SKIP}


def test_where_only_skipped_commits_are_left_all_of_them_are_named(orchard: Path) -> None:
    shas = _commits(orchard, "fine", "unknown", "unknown", "broken")
    found = bisect(Git(orchard), shas[0], shas[-1], _ORACLE, retries=0)
    assert set(found.culprits) == set(shas[1:])


def test_a_command_that_does_not_tell_the_ends_apart_is_refused(orchard: Path) -> None:
    shas = _commits(orchard, "fine", "fine", "fine")
    with pytest.raises(ReleaseError, match="expected the command to say bad, it says good"):
        bisect(Git(orchard), shas[0], shas[-1], _ORACLE)
    with pytest.raises(ReleaseError, match="name a command that is here"):
        bisect(Git(orchard), shas[0], shas[-1], ("no-such-command",))
    assert git(orchard, "worktree", "list").count("\n") == 1


def test_the_command_names_the_commit_and_records_each_step(
    orchard: Path, release: Callable[..., Result]
) -> None:
    shas = _commits(orchard, "fine", "fine", "broken")
    result = release("bisect", "--good", shas[0], "--retries", "0", "--", *_ORACLE)
    assert result.exit_code == 0, result.output
    assert "broken 2" in result.output
    steps = json.loads(release("history", "--json").stdout)["runs"][0]["steps"]
    assert [step["data"]["judgement"] for step in steps] == ["good", "bad", "good"]
