"""``torchyard release status``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from torchyard_release._cli._command import Answer, release_command
from torchyard_release._cut._cut import candidate_numbers
from torchyard_release._gates._following import following
from torchyard_release._gates._judgement import recorded_evidence, scorecard_of
from torchyard_release._gates._scorecard import Scorecard
from torchyard_release._records._journal import Entry
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._trust import judged

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@release_command
def status(workspace: Workspace) -> Answer:
    """Show the train's state: branch, candidates, what is known of them, what comes next."""
    git, train = workspace.git, workspace.train
    cut = git.has_branch(train.branch)
    tagged = candidate_numbers(git, train)
    built = set(workspace.release.candidates())
    rows = [_candidate(workspace, number, number in built) for number in tagged]
    entries = workspace.release.entries()
    newest = rows[-1] if rows else None
    card = scorecard_of(workspace, tagged[-1]) if newest and newest["built"] else None
    picked = 0
    if newest and cut:
        picked = int(git.run("rev-list", "--count", f"{newest['tag']}..{train.branch}"))
    data: dict[str, Any] = {
        "version": train.release,
        "branch": train.branch if cut else None,
        "candidates": rows,
        "commits_since_candidate": picked,
        "scorecard": card.counts() if card else None,
        "damage": list(card.damage) if card else [],
        "ready": bool(card and card.ready),
        "released": git.has_tag(train.tag),
        "published": any(entry.kind == "published" for entry in entries),
        "running": (running := workspace.state.at_work()),
        "interrupted": "" if running else _interrupted(entries),
    }
    data["next"] = _next(workspace, data, card)
    return Answer(data, lambda out: _show(out, data))


def _candidate(workspace: Workspace, number: int, built: bool) -> dict[str, Any]:
    tag = workspace.train.candidate_tag(number)
    row: dict[str, Any] = {
        "candidate": f"rc{number}",
        "tag": tag,
        "commit": workspace.git.commit(tag),
        "built": built,
        "artifacts": 0,
        "damage": [],
        "evidence": {},
        "gates": [],
    }
    if built:
        found = judged(workspace, number)
        candidate = found.candidate
        row["artifacts"], row["damage"] = len(candidate.artifacts), list(found.damage())
        for path, evidence in recorded_evidence(workspace, number)[0].items():
            if path.parent.parent != found.folder:
                continue
            fresh = evidence.fresh(candidate.sums)
            word = str(evidence.outcome) if fresh else "stale"
            row["gates"] = sorted({*row["gates"], *([evidence.gate] * fresh)})
            row["evidence"][word] = row["evidence"].get(word, 0) + 1
    return row


def _interrupted(entries: tuple[Entry, ...]) -> str:
    """Return the words of the last command, as a person runs it, if it never recorded its end."""
    for entry in reversed(entries):
        if entry.kind == "ended":
            return ""
        if entry.kind == "command":
            return shlex.join(word for word in entry.data["argv"] if word != "--json")
    return ""


def _next(workspace: Workspace, data: Mapping[str, Any], card: Scorecard | None) -> str:
    """Return the command that the train waits for; empty while one runs, or where none helps."""
    if data["running"] or (data["released"] and data["damage"]):
        return ""
    if data["interrupted"]:
        return f"torchyard release {data['interrupted']}"
    if data["released"]:
        return f"torchyard release {'audit' if data['published'] else 'publish'}"
    if not data["candidates"]:
        return "torchyard release cut"
    if data["commits_since_candidate"]:
        return "torchyard release cut --candidate"
    if card is None:
        return "torchyard release build"
    number = int(data["candidates"][-1]["candidate"].removeprefix("rc"))
    return f"torchyard release {following(workspace, card, number)}"


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
        for line in row["damage"]:
            out.print(f"    damaged: {line}", style="bold red", soft_wrap=True)
    if data["commits_since_candidate"]:
        out.print(f"  {data['commits_since_candidate']} commits since on the branch")
    if data["interrupted"]:
        out.print(f"interrupted: torchyard release {data['interrupted']}", style="bold yellow")
    if data["scorecard"]:
        counts = ", ".join(f"{number} {word}" for word, number in data["scorecard"].items())
        verdict = "ready" if data["ready"] else "not ready"
        out.print(f"  scorecard: {verdict}: {counts}", soft_wrap=True)
    if data["running"]:
        out.print(f"running: {data['running']}", soft_wrap=True)
        return
    if data["released"] and data["damage"]:
        out.print("next: restore the files of the release from where they were signed")
        return
    out.print(f"next: `{data['next']}`")
