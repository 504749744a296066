"""Bisecting: finds the commit that broke a command, by `git bisect`."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from torchyard import child_environ
from torchyard_release._errors import ReleaseError
from torchyard_release._repository._git import Git

_FOUND: Final = re.compile(r"^([0-9a-f]{40}) is the first bad commit", re.MULTILINE)
_LEFT: Final = re.compile(r"^([0-9a-f]{40})$", re.MULTILINE)


class Judgement(StrEnum):
    """What the judge says of a commit; the words are git's."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Tried:
    """One commit that was judged.

    Attributes:
        sha: its name.
        judgement: what was said.
        runs: how often the judge was asked.
        text: how it came to that.
    """

    sha: str
    judgement: Judgement
    runs: int
    text: str


@dataclass(frozen=True, slots=True)
class Bisection:
    """What a search came to.

    Attributes:
        culprits: the first bad commit; several where those between cannot be built.
        tried: every commit that was judged, in order.
    """

    culprits: tuple[str, ...]
    tried: tuple[Tried, ...]


def bisect(
    git: Git,
    good: str,
    bad: str,
    oracle: Sequence[str],
    *,
    build: Sequence[str] = (),
    retries: int = 2,
    say: Callable[[Tried], object] = lambda tried: None,
) -> Bisection:
    """Find the first commit on which a command fails, in a work tree of its own.

    Args:
        git: the repository; its own checkout stays as it is.
        good: a revision on which the command ends with 0.
        bad: a later one on which it does not.
        oracle: the command, such as ``nox -s tests``; 125 means that it cannot say.
        build: what comes first; where it fails, the commit is skipped.
        retries: how often a failure is tried again. A commit that passes once is good: what fails
            now and then is flaky, and no search can follow it.
        say: told each commit as it is judged.

    Raises:
        ReleaseError: the command does not tell the two ends apart.
    """
    tried: list[Tried] = []

    def judged(tree: Path, sha: str) -> Judgement:
        result = _judge(tree, sha, oracle, build, retries)
        tried.append(result)
        say(result)
        return result.judgement

    ends = {good: Judgement.GOOD, bad: Judgement.BAD}
    with _tree(git, git.commit(bad)) as tree:
        inner = Git(tree)
        for revision, expected in ends.items():
            inner.run("checkout", "--quiet", "--force", "--detach", git.commit(revision))
            if (found := judged(tree, git.commit(revision))) is not expected:
                raise ReleaseError(
                    f"{revision}: expected the command to say {expected}, it says {found} "
                    f"({tried[-1].text})",
                    "choose other ends, or a command that distinguishes them",
                )
        said = inner.run("bisect", "start", git.commit(bad), git.commit(good))
        while not (culprits := _culprits(said)):
            sha = inner.commit()
            said = _advance(tree, judged(tree, sha))
        return Bisection(culprits, tuple(tried))


def _judge(
    tree: Path, sha: str, oracle: Sequence[str], build: Sequence[str], retries: int
) -> Tried:
    if build and (code := _run(tree, build)):
        return Tried(sha, Judgement.SKIP, 0, f"it cannot be built: {build[0]} ended with {code}")
    codes: list[int] = []
    while len(codes) <= retries and 0 not in codes:
        codes.append(_run(tree, oracle))
        if codes[-1] == 125:
            return Tried(sha, Judgement.SKIP, len(codes), "the command cannot say (125)")
    if codes[-1]:
        return Tried(sha, Judgement.BAD, len(codes), f"ended with {codes[-1]}")
    flaky = f", after it failed {len(codes) - 1} times: flaky" if len(codes) > 1 else ""
    return Tried(sha, Judgement.GOOD, len(codes), f"ended with 0{flaky}")


def _advance(tree: Path, judgement: Judgement) -> str:
    """Tell git a judgement and return what it says; it fails where only skipped ones are left."""
    words = ("git", "bisect", judgement.value)
    environ = child_environ({"LC_ALL": "C"})
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True, env=environ)
    if done.returncode and not _culprits(done.stdout):
        said = " ".join((done.stderr or done.stdout).split())
        raise ReleaseError(f"git bisect {judgement}: {said}", "narrow the two ends")
    return done.stdout


def _culprits(said: str) -> tuple[str, ...]:
    if found := _FOUND.search(said):
        return (found[1],)
    # Only skipped commits are left: git lists them all.
    return tuple(_LEFT.findall(said)) if "skip" in said and "first bad commit" in said else ()


@contextlib.contextmanager
def _tree(git: Git, commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="train-bisect-") as name:
        tree = Path(name) / "tree"
        git.run("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            git.run("worktree", "remove", "--force", str(tree))


def _run(tree: Path, words: Sequence[str]) -> int:
    try:
        done = subprocess.run(words, cwd=tree, capture_output=True, env=child_environ({}))
    except OSError as error:
        raise ReleaseError(
            f"{words[0]}: {error.strerror}", "name a command that is here"
        ) from error
    return done.returncode
