"""``torchyard release status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchyard_release._candidate import read_candidate
from torchyard_release._cli._command import Answer, release_command
from torchyard_release._cut import candidate_numbers
from torchyard_release._evidence import FOLDER, read_evidence
from torchyard_release._journal import Entry
from torchyard_release._train import Train
from torchyard_release._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@release_command
def status(workspace: Workspace) -> Answer:
    """Show where the train stands: branch, candidates, what is known of them, what comes next."""
    git, train = workspace.git, workspace.train
    cut = git.has_branch(train.branch)
    tagged = candidate_numbers(git, train)
    built = set(workspace.release.candidates())
    rows = [_candidate(workspace, number, number in built) for number in tagged]
    entries = workspace.release.entries()
    interrupted = _interrupted(entries)
    published = git.has_tag(train.tag)
    newest = rows[-1] if rows else None
    picked = 0
    if newest:
        picked = int(git.run("rev-list", "--count", f"{newest['tag']}..{train.branch}"))
    data = {
        "version": train.release,
        "branch": train.branch if cut else None,
        "candidates": rows,
        "commits_since_candidate": picked,
        "released": published,
        "interrupted": interrupted,
        "next": _next(train, cut, newest, picked, published, interrupted),
    }
    return Answer(data, lambda out: _show(out, data))


def _candidate(workspace: Workspace, number: int, built: bool) -> dict[str, Any]:
    tag = workspace.train.candidate_tag(number)
    row: dict[str, Any] = {
        "candidate": f"rc{number}",
        "tag": tag,
        "commit": workspace.git.commit(tag),
        "built": built,
        "artifacts": 0,
        "evidence": {},
        "gates": [],
    }
    if built:
        folder = workspace.release.candidate(number)
        candidate = read_candidate(folder)
        row["artifacts"] = len(candidate.artifacts)
        for evidence in read_evidence(folder / FOLDER).values():
            fresh = evidence.fresh(candidate.sums)
            word = str(evidence.outcome) if fresh else "stale"
            row["gates"] = sorted({*row["gates"], *([evidence.gate] * fresh)})
            row["evidence"][word] = row["evidence"].get(word, 0) + 1
    return row


def _interrupted(entries: tuple[Entry, ...]) -> str:
    """Return the words of the last command if it never recorded its end."""
    for entry in reversed(entries):
        if entry.kind == "ended":
            return ""
        if entry.kind == "command":
            return " ".join(entry.data["argv"])
    return ""


def _next(
    train: Train,
    cut: bool,
    newest: dict[str, Any] | None,
    picked: int,
    published: bool,
    interrupted: str,
) -> str:
    if interrupted:
        return f"torchyard release {interrupted}"
    if published:
        return "torchyard release audit"
    if not cut or newest is None:
        return "torchyard release cut"
    if picked:
        return "torchyard release cut --candidate"
    if not newest["built"]:
        return "torchyard release build"
    unknown = {gate.name for gate in train.gates} - set(newest["gates"])
    if "inspect" in unknown:
        return "torchyard release inspect"
    if unknown:
        return "torchyard release verify"
    return "torchyard release scorecard"


def _show(out: Console, data: dict[str, Any]) -> None:
    branch = data["branch"] or "not cut yet"
    out.print(f"{data['version']}: {'released' if data['released'] else branch}", style="bold")
    for row in data["candidates"]:
        known = ", ".join(f"{count} {word}" for word, count in sorted(row["evidence"].items()))
        built = f"{row['artifacts']} artifacts" if row["built"] else "not built"
        out.print(
            f"  {row['tag']}  {row['commit'][:12]}  {built}{'; ' if known else ''}{known}",
            soft_wrap=True,
        )
    if data["commits_since_candidate"]:
        out.print(f"  {data['commits_since_candidate']} commits since on the branch")
    if data["interrupted"]:
        out.print(f"interrupted: torchyard release {data['interrupted']}", style="bold yellow")
    out.print(f"next: {data['next']}")
