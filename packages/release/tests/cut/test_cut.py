"""Cutting makes branch and tag together, from a tree that is in order, or nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from packages.release.tests import foreign
from packages.release.tests.killing import WHEN, kill_at
from torchyard_release._repository._workspace import Workspace


@pytest.fixture
def orchard(tmp_path: Path) -> Path:
    """Return a monorepo whose copies all agree."""
    return foreign.make(tmp_path / "orchard", agreed=True)


def _shown(root: Path, revision: str, path: str) -> dict[str, Any]:
    return tomllib.loads(foreign.git(root, "show", f"{revision}:{path}"))


def _refs(root: Path) -> str:
    return foreign.git(root, "for-each-ref", "--format=%(refname)")


def test_a_branch_and_a_candidate_hold_the_released_version(
    orchard: Path, release_json: Callable[..., Any]
) -> None:
    data = release_json("cut")
    assert (data["branch"], data["tag"], data["number"]) == ("release/1.4", "v1.4.0-rc1", 1)
    assert data["fragments"] == 2
    shop = _shown(orchard, "v1.4.0-rc1", "packages/shop/pyproject.toml")["project"]
    assert shop["version"] == "1.4.0"
    assert shop["dependencies"] == ["orchard~=1.4.0", "orchard-press~=1.4.0"]
    version = foreign.git(orchard, "show", "v1.4.0-rc1:packages/orchard/src/orchard/_version.py")
    assert version == '__version__ = "1.4.0"\n'
    assert "orchard-shop==1.4.0`" in foreign.git(orchard, "show", "v1.4.0-rc1:README.md")
    assert foreign.git(orchard, "cat-file", "-t", "v1.4.0-rc1") == "tag\n"
    assert foreign.git(orchard, "log", "--format=%s", "main..release/1.4") == (
        "Release 1.4.0: versions\n"
    )


def test_the_checkout_is_left_as_it_was(orchard: Path, release_json: Callable[..., Any]) -> None:
    before = foreign.git(orchard, "rev-parse", "main")
    release_json("cut")
    assert foreign.git(orchard, "rev-parse", "HEAD") == before
    assert foreign.git(orchard, "symbolic-ref", "HEAD") == "refs/heads/main\n"
    assert foreign.git(orchard, "status", "--porcelain") == ""
    assert foreign.git(orchard, "worktree", "list").count("\n") == 1


def test_what_was_cut_agrees_with_its_own_declaration(
    orchard: Path, release_json: Callable[..., Any]
) -> None:
    release_json("cut")
    foreign.git(orchard, "switch", "--quiet", "release/1.4")
    assert release_json("check", "--no-nox")["drifts"] == []


@pytest.mark.parametrize(
    ("fault", "said", "remedy"),
    [
        ("dirty", "the work tree has changes that no commit holds: README.md", "commit them"),
        ("untracked", "no commit holds: stray.txt", "git stash --include-untracked"),
        ("detached", "HEAD is detached", "git switch main"),
        ("elsewhere", "HEAD is on topic: expected main", "git switch main"),
        ("tag", "v1.4.0-rc1: the tag exists, without the branch", "take the next version"),
        ("released", "v1.4.0: the tag exists", "take the next version"),
        ("branch", "release/1.4: the branch exists", "cut --candidate"),
        ("drift", "packages/press/pyproject.toml: version differs from train.toml", "check --writ"),
        ("fragments", "changelog: no fragment", "add one for each change"),
        ("fragment-type", "type: expected one of breaking, added, fixed, got 'new'", "name it"),
        ("fragment-package", "package: expected one of orchard, press, shop, workspace", "name it"),
        ("fragment-name", "changelog.d/note.md: not the name of a fragment", "name it <change>"),
        ("fragment-empty", "changelog.d/1.orchard.added.md: it is empty", "one sentence"),
        ("version", "version: expected X.Y.Z.devN on main, got 1.4.0", "bump 1.4.0.dev0"),
        ("cycle", "packages require one another in a circle: ", "take one of these out"),
    ],
)
def test_a_tree_that_is_not_in_order_is_refused(
    orchard: Path, release: Callable[..., Result], fault: str, said: str, remedy: str
) -> None:
    _break(orchard, fault)
    refs = _refs(orchard)
    result = release("cut")
    assert result.exit_code == 1
    assert said in result.output
    assert remedy in result.output.partition("\ndo: ")[2]
    assert _refs(orchard) == refs


def _break(root: Path, fault: str) -> None:
    def replace(name: str, old: str, new: str) -> None:
        foreign.write(root, name, (root / name).read_text().replace(old, new, 1))

    match fault:
        case "dirty":
            foreign.write(root, "README.md", "changed")
            return
        case "untracked":
            foreign.write(root, "stray.txt", "")
            return
        case "detached":
            foreign.git(root, "switch", "--quiet", "--detach")
            return
        case "elsewhere":
            foreign.git(root, "switch", "--quiet", "--create", "topic")
            return
        case "tag":
            foreign.git(root, "tag", "v1.4.0-rc1")
            return
        case "released":
            foreign.git(root, "tag", "v1.4.0")
            return
        case "branch":
            foreign.git(root, "branch", "release/1.4")
            return
        case "drift":
            replace("packages/press/pyproject.toml", '"1.4.0.dev0"', '"1.3.0"')
        case "fragments":
            foreign.git(root, "rm", "--quiet", "-r", "changelog.d")
            foreign.write(root, "changelog.d/.gitignore", "")
        case "fragment-type":
            foreign.write(root, "changelog.d/3.press.new.md", "Be new.")
        case "fragment-package":
            foreign.write(root, "changelog.d/3.cider.added.md", "Be new.")
        case "fragment-name":
            foreign.write(root, "changelog.d/note.md", "Be new.")
        case "fragment-empty":
            foreign.write(root, "changelog.d/1.orchard.added.md", "\n")
        case "version":
            replace("train.toml", '"1.4.0.dev0"', '"1.4.0"')
        case "cycle":
            replace(
                "train.toml", '"packages/orchard"', '"packages/orchard"\nrequires=["orchard-shop"]'
            )
    foreign.git(root, "add", "--all")
    foreign.git(root, "commit", "--quiet", "--message=break")


def test_cutting_twice_is_refused_and_changes_nothing(
    orchard: Path, release: Callable[..., Result]
) -> None:
    assert release("cut").exit_code == 0
    refs = foreign.git(orchard, "show-ref")
    result = release("cut")
    assert result.exit_code == 1
    assert "release/1.4: the branch exists: this train was cut before" in result.output
    assert foreign.git(orchard, "show-ref") == refs


def test_a_second_operator_is_refused(workspace: Workspace, release: Callable[..., Result]) -> None:
    with workspace.operation(["build"]):
        result = release("cut")
    assert result.exit_code == 1
    assert "another operator holds this train: Pomona" in result.output


def test_a_candidate_is_the_tip_of_the_branch(
    orchard: Path, release: Callable[..., Result], release_json: Callable[..., Any]
) -> None:
    assert "no such branch" in release("cut", "--candidate").output
    release_json("cut")
    result = release("cut", "--candidate")
    assert result.exit_code == 1
    assert "release/1.4 is what v1.4.0-rc1 is" in result.output
    foreign.git(orchard, "switch", "--quiet", "release/1.4")
    foreign.write(orchard, "packages/shop/README.md", "# orchard-shop, fixed\n")
    foreign.git(orchard, "commit", "--quiet", "--all", "--message=Fix")
    foreign.git(orchard, "switch", "--quiet", "main")
    assert release_json("status")["commits_since_candidate"] == 1
    assert release_json("status")["next"] == "torchyard release cut --candidate"
    data = release_json("cut", "--candidate")
    assert (data["tag"], data["commit"]) == (
        "v1.4.0-rc2",
        foreign.git(orchard, "rev-parse", "release/1.4").strip(),
    )
    foreign.git(orchard, "tag", "v1.4.0", "v1.4.0-rc2")
    assert "v1.4.0 is released: its candidates are over" in release("cut", "--candidate").output


@pytest.mark.parametrize(
    ("pins", "changed", "raised"),
    [
        ("compatible", "shop", ["orchard-shop"]),
        ("compatible", "orchard", ["orchard"]),
        ("exact", "press", ["orchard-press", "orchard-shop"]),
    ],
)
def test_a_patch_takes_along_only_what_changed(
    orchard: Path, release_json: Callable[..., Any], pins: str, changed: str, raised: list[str]
) -> None:
    train = (orchard / "train.toml").read_text().replace('"compatible"', f'"{pins}"')
    foreign.write(orchard, "train.toml", train)
    foreign.git(orchard, "commit", "--quiet", "--allow-empty", "--all", "--message=Pins")
    release_json("cut")
    foreign.git(orchard, "tag", "v1.4.0", "v1.4.0-rc1")
    foreign.git(orchard, "switch", "--quiet", "release/1.4")
    foreign.write(orchard, f"packages/{changed}/README.md", "# Fixed\n")
    foreign.git(orchard, "commit", "--quiet", "--all", "--message=Fix")
    release_json("bump", "1.4.1")
    foreign.git(orchard, "commit", "--quiet", "--all", "--message=Open 1.4.1")
    for name, folder in (
        ("orchard", "orchard"),
        ("orchard-press", "press"),
        ("orchard-shop", "shop"),
    ):
        project = _shown(orchard, "HEAD", f"packages/{folder}/pyproject.toml")["project"]
        assert project["version"] == ("1.4.1" if name in raised else "1.4.0")
    assert release_json("plan")["packages"] == raised
    assert release_json("cut", "--candidate")["tag"] == "v1.4.1-rc1"


def test_a_version_that_is_none_changes_nothing(
    orchard: Path, release: Callable[..., Result]
) -> None:
    result = release("bump", "1.5")
    assert result.exit_code == 1
    assert "version: expected a version X.Y.Z or X.Y.Z.devN, got '1.5'" in result.output
    assert foreign.git(orchard, "status", "--porcelain") == ""


_FULL = """
import resource, sys
from torchyard_release._cli import command
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
command(["--root", sys.argv[1], "cut"])
"""


@pytest.mark.parametrize("room", [0, 600, 1800], ids=["nothing", "the journal", "some of git"])
def test_a_full_disk_cuts_nothing_and_the_same_command_cuts_it_later(
    orchard: Path, release: Callable[..., Result], room: int
) -> None:
    refs = _refs(orchard)
    words = [sys.executable, "-c", _FULL, str(orchard), str(room)]
    full = subprocess.run(words, capture_output=True, text=True)
    assert full.returncode == 1, full.stderr
    assert "\ndo: " in full.stderr
    assert _refs(orchard) == refs
    assert release("cut").exit_code == 0
    kinds = [entry.kind for entry in Workspace.find(orchard).release.entries()]
    assert kinds.count("cut.done") == 1
    assert kinds[-1] == "ended"


_DYING = """
import os, signal, sys
from click.testing import CliRunner
from torchyard_release._records import _journal
from torchyard_release._cli import command
write, count, moment = _journal._write, 0, sys.argv[2]
def dying(descriptor, line):
    global count
    count += 1
    if count == int(sys.argv[3]):
        if moment == "within":
            os.write(descriptor, line[: len(line) // 2])
        if moment == "after":
            write(descriptor, line)
        os.kill(os.getpid(), signal.SIGKILL)
    write(descriptor, line)
_journal._write = dying
command(["--root", sys.argv[1], "cut", *sys.argv[4:]])
"""


@pytest.mark.sweep
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_killed_while_making_a_further_candidate_it_is_made_once(
    orchard: Path, release: Callable[..., Result], number: int
) -> None:
    assert release("cut").exit_code == 0
    foreign.git(orchard, "switch", "--quiet", "release/1.4")
    foreign.write(orchard, "packages/shop/README.md", "# orchard-shop, fixed\n")
    foreign.git(orchard, "commit", "--quiet", "--all", "--message=Fix")
    words = [sys.executable, "-c", _DYING, str(orchard), "within", str(number), "--candidate"]
    killed = subprocess.run(words, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    result = release("cut", "--candidate")
    assert (result.exit_code == 0) == (number < 4), result.output
    tags = foreign.git(orchard, "tag", "--list").split()
    assert tags == ["v1.4.0-rc1", "v1.4.0-rc2"]
    done = [e for e in Workspace.find(orchard).release.entries() if e.kind == "cut.done"]
    assert [entry.data["tag"] for entry in done] == tags


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("number", "moment"),
    [*((n, moment) for n in (1, 2, 3, 4) for moment in ("before", "within")), (4, "after")],
)
def test_killed_at_any_line_of_the_journal_it_is_finished_by_running_it_again(
    orchard: Path, release: Callable[..., Result], number: int, moment: str
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _DYING, str(orchard), moment, str(number)], capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    refs = _refs(orchard).split()
    assert ("refs/heads/release/1.4" in refs) == ("refs/tags/v1.4.0-rc1" in refs)
    # The lines are command, cut.begin, cut.done, ended.
    done = number == 4
    result = release("cut")
    if done:
        assert "this train was cut before" in result.output
    else:
        assert result.exit_code == 0, result.output
    assert {"refs/heads/release/1.4", "refs/tags/v1.4.0-rc1"} <= set(_refs(orchard).split())
    kinds = [entry.kind for entry in Workspace.find(orchard).release.entries()]
    assert kinds.count("cut.done") == 1
    assert foreign.git(orchard, "status", "--porcelain") == ""
    assert len(foreign.git(orchard, "log", "--format=%s", "main..release/1.4").splitlines()) == 1


@pytest.mark.sweep
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_killed_from_outside_at_any_point_it_is_finished_by_running_it_again(
    orchard: Path, release: Callable[..., Result], at: int, when: str
) -> None:
    assert kill_at(orchard, ("cut",), at=at, when=when) == -signal.SIGKILL
    _check_cut_after(orchard, release("cut"))


@pytest.mark.sweep
@pytest.mark.parametrize("share", [0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
def test_killed_with_the_git_that_it_runs_it_is_finished_by_running_it_again(
    orchard: Path, release: Callable[..., Result], tmp_path: Path, share: float
) -> None:
    program = "import sys; from torchyard_release._cli import command; command(sys.argv[1:])"

    def begin(root: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", program, "--root", str(root), "cut"]
        return subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL)

    other = foreign.make(tmp_path / "other", agreed=True)
    began = time.monotonic()
    assert begin(other).wait() == 0
    seconds = time.monotonic() - began
    process = begin(orchard)
    time.sleep(seconds * share)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _check_cut_after(orchard, release("cut"))


def test_a_tree_over_which_git_was_killed_is_made_again(
    orchard: Path, release: Callable[..., Result]
) -> None:
    tree = Workspace.find(orchard).state.folder / "cutting"
    # git locks a tree while it makes it.
    foreign.git(orchard, "worktree", "add", "--quiet", "--detach", "--lock", str(tree), "main")
    shutil.rmtree(tree)
    _check_cut_after(orchard, release("cut"))


def _check_cut_after(root: Path, result: Result) -> None:
    """Assert what a cut that was killed ends in when it is run again."""
    assert result.exit_code == 0 or "this train was cut before" in result.output, result.output
    assert {"refs/heads/release/1.4", "refs/tags/v1.4.0-rc1"} <= set(_refs(root).split())
    kinds = [entry.kind for entry in Workspace.find(root).release.entries()]
    assert kinds.count("cut.done") == 1
    assert foreign.git(root, "status", "--porcelain") == ""
    assert len(foreign.git(root, "log", "--format=%s", "main..release/1.4").splitlines()) == 1
    assert len(foreign.git(root, "worktree", "list").splitlines()) == 1
