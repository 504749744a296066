"""Cutting: creates the branch of a series and the tag of a candidate, both or neither.

The commit is made in a folder beside the checkout, which is left alone; branch and tag come into
being in one transaction of git. Whoever is killed before it has changed nothing.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from torchyard_release._copies._bump import bump_tree
from torchyard_release._copies._check import derive
from torchyard_release._cut._fragments import check_fragments
from torchyard_release._declaration._parse import parse_train
from torchyard_release._declaration._train import FILE, Train
from torchyard_release._errors import GitError, WorkspaceError
from torchyard_release._records._journal import Journal
from torchyard_release._repository._git import Git
from torchyard_release._repository._workspace import Workspace

_ABSENT: Final = "0" * 40


@dataclass(frozen=True, slots=True)
class Cut:
    """What was cut.

    Attributes:
        branch: of the series.
        tag: of the candidate.
        number: of the candidate.
        commit: that both point at.
        fragments: how many changes the notes will have.
    """

    branch: str
    tag: str
    number: int
    commit: str
    fragments: int


def cut_branch(workspace: Workspace, journal: Journal, commands: click.Group) -> Cut:
    """Cut the branch of the series from the main branch, with its first candidate.

    Raises:
        GitError: the checkout is not clean, or not on the main branch; the branch or a tag exists.
        WorkspaceError: copies differ from train.toml, or fragments are wrong.
    """
    git, train = workspace.git, workspace.train
    _clear(workspace)
    tag = train.candidate_tag(1)
    commit = git.commit()
    began = _unfinished(journal, tag)
    if began is not None and git.has_branch(train.branch) and git.has_tag(tag):
        # Killed between git's transaction and the line about it.
        return _done(git, journal, train, 1, began)
    branch = git.branch()
    if branch != train.main:
        raise GitError(
            f"HEAD is on {branch}: expected {train.main}, from which trains are cut",
            f"`git switch {train.main}`; a further candidate of {train.branch} is made by "
            f"`torchyard release cut --candidate`",
        )
    git.require_clean()
    _refuse_existing(git, train, tag)
    _require_agreement(workspace.root, train, git, commands)
    fragments = check_fragments(workspace.root, train)
    journal.append("cut.begin", branch=train.branch, tag=tag, commit=commit, fragments=fragments)
    with _checked_out(workspace, commit) as folder:
        bump_tree(folder, Git(folder), train.release, commands)
        beside = Git(folder)
        beside.run("commit", "--quiet", "--all", f"--message=Release {train.release}: versions")
        made = beside.commit()
        label = beside.run("mktag", text=_tag_text(beside, tag, made, train))
        beside.run(
            *("update-ref", "--stdin"),
            text=f"create refs/heads/{train.branch} {made}\ncreate refs/tags/{tag} {label}\n",
        )
    return _done(git, journal, train, 1, fragments)


def cut_candidate(workspace: Workspace, journal: Journal, commands: click.Group) -> Cut:
    """Tag the tip of the series' branch as its next candidate.

    Raises:
        GitError: there is no branch, it has changed nothing since the last candidate, or the
            checkout has changes.
        WorkspaceError: copies differ from the branch's train.toml.
    """
    git, train = workspace.git, workspace.train
    _clear(workspace)
    if not git.has_branch(train.branch):
        raise GitError(
            f"{train.branch}: no such branch, so that there is nothing to make a candidate of",
            "cut the train: `torchyard release cut`",
        )
    git.require_clean()
    tip = git.commit(train.branch)
    on_branch = parse_train(git.run("show", f"{tip}:{FILE}"))
    if on_branch.version.dev is not None or on_branch.series != train.series:
        raise GitError(
            f"{train.branch}: its train.toml says {on_branch.version}: expected a version "
            f"{train.series}.Z",
            f"`git switch {train.branch}`, `torchyard release bump {train.series}.Z`, commit",
        )
    if git.has_tag(on_branch.tag):
        raise GitError(
            f"{on_branch.tag} is released: its candidates are over",
            f"open a patch on {train.branch}: `torchyard release bump`",
        )
    number = max(candidate_numbers(git, on_branch), default=0) + 1
    if number > 1 and git.commit(on_branch.candidate_tag(number - 1)) == tip:
        last = on_branch.candidate_tag(number - 1)
        if _unfinished(journal, last) is not None:
            return _done(git, journal, on_branch, number - 1, 0)
        raise GitError(
            f"{train.branch} is what {last} is: there is nothing new to make a candidate of",
            "pick what it lacks: `torchyard release pick`; or go on: `torchyard release build`",
        )
    with _checked_out(workspace, tip) as folder:
        beside = Git(folder)
        _require_agreement(folder, on_branch, beside, commands)
        fragments = check_fragments(folder, on_branch)
        tag = on_branch.candidate_tag(number)
        journal.append("cut.begin", branch=train.branch, tag=tag, commit=tip, fragments=fragments)
        label = beside.run("mktag", text=_tag_text(beside, tag, tip, on_branch))
        beside.run("update-ref", f"refs/tags/{tag}", label, _ABSENT)
    return _done(git, journal, on_branch, number, fragments)


def candidate_numbers(git: Git, train: Train) -> tuple[int, ...]:
    """Return the numbers of the candidates that have a tag, ascending."""
    form = re.compile(rf"{re.escape(train.tag)}-rc([1-9]\d*)")
    matches = map(form.fullmatch, git.tags(f"{train.tag}-rc*"))
    return tuple(sorted(int(match[1]) for match in matches if match))


def _unfinished(journal: Journal, tag: str) -> int | None:
    """Return the fragments of a cut that was begun and never recorded as done; None without."""
    fragments = None
    for entry in journal.entries():
        if entry.kind == "cut.begin" and entry.data["tag"] == tag:
            fragments = int(entry.data["fragments"])
        if entry.kind == "cut.done" and entry.data["tag"] == tag:
            fragments = None
    return fragments


def _done(git: Git, journal: Journal, train: Train, number: int, fragments: int) -> Cut:
    tag = train.candidate_tag(number)
    commit = git.commit(tag)
    journal.append("cut.done", branch=train.branch, tag=tag, commit=commit)
    return Cut(train.branch, tag, number, commit, fragments)


def _refuse_existing(git: Git, train: Train, tag: str) -> None:
    if train.version.dev is None:
        raise GitError(
            f"{FILE}: version: expected X.Y.Z.devN on {train.main}, got {train.version}",
            f"open the next version there: `torchyard release bump {train.series}.0.dev0`",
        )
    if git.has_branch(train.branch):
        raise GitError(
            f"{train.branch}: the branch exists: this train was cut before",
            "a further candidate is made by `torchyard release cut --candidate`; the next train "
            "needs another version: `torchyard release bump`",
        )
    for name in (train.tag, tag):
        if git.has_tag(name):
            raise GitError(
                f"{name}: the tag exists, without the branch {train.branch}",
                f"find out whose it is: `git show {name}`; a tag that was ever pushed is not "
                f"made again: take the next version",
            )


def _require_agreement(root: Path, train: Train, git: Git, commands: click.Group) -> None:
    derived = derive(root, train, git.files(), commands, nox=False)
    if derived.drifts:
        first = derived.drifts[0]
        more = f", and {len(derived.drifts) - 1} more" if len(derived.drifts) > 1 else ""
        raise WorkspaceError(
            f"{first.path}: {first.what} differs from {FILE}{more}",
            "`torchyard release check` shows all, `torchyard release check --write` derives them; "
            "commit",
        )


def _tag_text(git: Git, tag: str, commit: str, train: Train) -> str:
    identity = git.run("var", "GIT_COMMITTER_IDENT")
    title = f"{train.name} {train.release}, candidate {tag.rpartition('rc')[2]}"
    return f"object {commit}\ntype commit\ntag {tag}\ntagger {identity}\n\n{title}\n"


@contextlib.contextmanager
def _checked_out(workspace: Workspace, commit: str) -> Iterator[Path]:
    """Check a commit out in a folder of its own, for as long as the block lasts."""
    folder = _clear(workspace)
    # Forced twice: git locks a tree while it makes it, and one that was killed then stays locked.
    words = ("--force", "--force", "--quiet", "--detach")
    workspace.git.run("worktree", "add", *words, str(folder), commit)
    try:
        yield folder
    finally:
        _clear(workspace)


def _clear(workspace: Workspace) -> Path:
    """Take the folder away in which a commit is made, also one that a killed command left."""
    folder = workspace.state.folder / "cutting"
    shutil.rmtree(folder, ignore_errors=True)
    workspace.git.run("worktree", "prune")
    return folder
