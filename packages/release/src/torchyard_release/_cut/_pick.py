"""Picks: commits of main that go onto the release's branch after the cut, each with a reason."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from torchyard_release._errors import GitError, ReleaseError
from torchyard_release._repository._history_range import PICKED, Commit, commits_of
from torchyard_release._repository._workspace import Workspace

CRITERION: Final = "Pick-Criterion"
APPROVED: Final = "Pick-Dispensation"
# Shorter names of a commit say too little to prove anything.
_REVERTS: Final = re.compile(r"^This reverts commit ([0-9a-f]{12,40})\b", re.MULTILINE)
_FIXES: Final = re.compile(r"^Fixes: ([0-9a-f]{12,40})\b", re.MULTILINE | re.IGNORECASE)


class PickError(ReleaseError):
    """A commit is not picked; the branch is as it was."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One commit of the release's branch.

    Attributes:
        sha: its name on the branch.
        subject: its first line.
        origin: the commit of main that it is; empty where it was made on the branch.
        criterion: what it was let in by; empty where nobody said.
        dispensation: who let it in although its phase would not.
        same_patch: whether it changes what its origin changed; None without an origin.
        candidate: the first candidate that has it; empty where it waits for the next.
    """

    sha: str
    subject: str
    origin: str
    criterion: str
    dispensation: str
    same_patch: bool | None
    candidate: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A commit of main that the branch lacks and should have.

    Attributes:
        sha: its name.
        subject: its first line.
        kind: ``revert`` or ``fix``.
        target: the commit that it reverts or fixes, which the branch has.
        proof: how that is known.
    """

    sha: str
    subject: str
    kind: str
    target: str
    proof: str


def base_of(workspace: Workspace) -> str:
    """Return the commit at which the branch left main."""
    return workspace.git.run("merge-base", workspace.train.main, "HEAD")


def ledger(workspace: Workspace) -> tuple[Pick, ...]:
    """Return every commit of the branch since it left main, oldest first."""
    git, found = workspace.git, []
    built = [
        (f"rc{number}", workspace.git.commit(workspace.train.candidate_tag(number)))
        for number in workspace.release.candidates()
    ]
    for commit in commits_of(git, f"{base_of(workspace)}..HEAD", "--no-merges"):
        origin = next(iter(PICKED.findall(commit.message)), "")
        found.append(
            Pick(
                sha=commit.sha,
                subject=commit.subject,
                origin=origin,
                criterion=_trailer(commit, CRITERION),
                dispensation=_trailer(commit, APPROVED),
                same_patch=(
                    patch_of(workspace, commit.sha) == patch_of(workspace, origin)
                    if origin
                    else None
                ),
                candidate=next(
                    (name for name, at in built if _holds(workspace, at, commit.sha)), ""
                ),
            )
        )
    return tuple(found)


def pick(
    workspace: Workspace,
    revision: str,
    criterion: str,
    *,
    today: datetime.date,
    dispensation: str = "",
) -> Pick:
    """Bring a commit of main onto the branch that is checked out.

    Args:
        workspace: the repository, on the release's branch.
        revision: a commit of main.
        criterion: why it may; one of the phase's.
        today: which phase it is.
        dispensation: who lets it in although the phase would not: ``name: reason``.

    Raises:
        PickError: it may not, or git cannot; the branch is as it was.
    """
    git, train = workspace.git, workspace.train
    if git.branch() != train.branch:
        raise PickError(
            f"expected {train.branch} checked out, got {git.branch()}",
            f"`git switch {train.branch}`",
        )
    git.require_clean()
    commit = git.commit(revision)
    _check_criterion(workspace, criterion, today, dispensation)
    if not _holds(workspace, train.main, commit):
        raise PickError(
            f"{revision}: expected a commit of {train.main}, which every pick comes from",
            f"land it on {train.main} first, then pick that commit",
        )
    trailers = ["--trailer", f"{CRITERION}: {criterion}"]
    trailers += ["--trailer", f"{APPROVED}: {dispensation}"] if dispensation else []
    there = next((p for p in ledger(workspace) if p.origin == commit), None)
    if there is not None and (there.criterion or there.sha != git.commit()):
        raise PickError(
            f"{commit[:12]} was picked already, as {there.sha[:12]}",
            "nothing is to be done; `torchyard release pick --list` shows the ledger",
        )
    if there is None:
        _refuse_equal(workspace, commit)
        _cherry_pick(workspace, commit)
    # Also after a kill between the two, and after a conflict that was resolved by hand.
    git.run("commit", "--amend", "--no-edit", "--no-verify", *trailers)
    return ledger(workspace)[-1]


def missing(workspace: Workspace, declined: Sequence[str] = ()) -> tuple[Missing, ...]:
    """Return the reverts and fixes of main that the branch lacks although it has their target.

    Args:
        workspace: the repository, on the release's branch.
        declined: commits that somebody decided against.
    """
    git = workspace.git
    base = base_of(workspace)
    picked = {item.origin: item.sha for item in ledger(workspace) if item.origin}
    patches = {patch_of(workspace, sha) for sha in picked.values()}
    found = []
    for commit in commits_of(git, f"{base}..{workspace.train.main}", "--no-merges"):
        if commit.sha in {*picked, *declined} or patch_of(workspace, commit.sha) in patches:
            continue
        for kind, pattern in (("revert", _REVERTS), ("fix", _FIXES)):
            for name in pattern.findall(commit.message):
                if not git.succeeds("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"):
                    continue
                target = git.commit(name)
                if target in picked:
                    proof = f"the branch has it as pick {picked[target][:12]}"
                elif _holds(workspace, "HEAD", target):
                    proof = "git merge-base --is-ancestor says that the branch has it"
                else:
                    continue
                found.append(Missing(commit.sha, commit.subject, kind, target, proof))
    return tuple(found)


def patch_of(workspace: Workspace, revision: str) -> str:
    """Return the id of what a commit changes, whatever it is called and wherever it is."""
    if not workspace.git.succeeds("cat-file", "-e", f"{revision}^{{commit}}"):
        return ""
    patch = workspace.git.run("diff-tree", "-p", "--no-color", "--full-index", revision)
    return workspace.git.run("patch-id", "--stable", text=f"{patch}\n").partition(" ")[0]


def _check_criterion(
    workspace: Workspace, criterion: str, today: datetime.date, dispensation: str
) -> None:
    train = workspace.train
    phase = train.phase_on(today)
    allowed = phase.picks if phase else ()
    known = sorted({word for item in train.phases for word in item.picks})
    if criterion not in known:
        raise PickError(
            f"--as: expected one of {', '.join(known) or '(none)'}, got {criterion!r}",
            "choose one, or write it into picks of a phase of train.toml",
        )
    if criterion not in allowed and not dispensation:
        raise PickError(
            f"{criterion!r} is no reason to pick in phase {phase.name if phase else '(none)'!r}, "
            f"which takes {', '.join(allowed) or 'nothing'}",
            "let it wait for the next train, or have the train's owner say "
            "--dispensation 'NAME: REASON', which the ledger keeps",
        )
    if dispensation and not re.fullmatch(r"[^:\n]+: \S[^\n]*", dispensation):
        raise PickError(
            f"--dispensation: expected 'NAME: REASON', got {dispensation!r}", "say who, and why"
        )


def _refuse_equal(workspace: Workspace, commit: str) -> None:
    wanted = patch_of(workspace, commit)
    for item in ledger(workspace):
        if wanted and patch_of(workspace, item.sha) == wanted:
            raise PickError(
                f"{commit[:12]} changes the same as {item.sha[:12]}, which the branch has",
                "nothing is to be done",
            )
    if _holds(workspace, "HEAD", commit):
        raise PickError(
            f"{commit[:12]} is on the branch: it was there at the cut", "nothing is to be done"
        )


def _cherry_pick(workspace: Workspace, commit: str) -> None:
    git = workspace.git
    try:
        git.run("cherry-pick", "-x", commit)
    except GitError as error:
        conflicts = git.run("diff", "--name-only", "--diff-filter=U").splitlines()
        git.succeeds("cherry-pick", "--abort")
        if conflicts:
            raise PickError(
                f"{commit[:12]} conflicts in {', '.join(conflicts)}; the branch is as it was",
                f"pick first what it builds on, or `git cherry-pick -x {commit[:12]}`, resolve it, "
                "`git cherry-pick --continue`, then run this command again, which records it",
            ) from error
        raise PickError(
            f"{commit[:12]}: {error.text}", "nothing of it is left to pick; leave it"
        ) from error


def _holds(workspace: Workspace, revision: str, commit: str) -> bool:
    return workspace.git.succeeds("merge-base", "--is-ancestor", commit, revision)


def _trailer(commit: Commit, name: str) -> str:
    found = re.findall(rf"^{name}: (.+)$", commit.message, re.MULTILINE)
    return str(found[-1]).strip() if found else ""
