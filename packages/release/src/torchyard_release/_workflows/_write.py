"""``workflow_texts``: the files, as text."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from torchyard_release._declaration._train import ANY_CELL, Gate, Train
from torchyard_release._declaration._workflows import Workflows
from torchyard_release._workflows._jobs import PAYLOAD, Jobs

__all__ = ["workflow_texts"]

_HEAD: Final = (
    "# Generated from train.toml by `torchyard release workflows`; `torchyard release check` finds "
    "what differs.\n"
)


def workflow_texts(train: Train) -> dict[str, str]:
    """Return the text of each file by its path; none where no workflow is declared.

    ``tests`` runs the gates of every change on common machines, ``hardware`` those of targets that
    need machines of the owner's, on demand and each week, never for a stranger's change,
    ``release`` what a tag starts, ``docs`` publishes the documentation, and ``relay`` is what a
    commit of PyTorch's starts. Labels of the
    owner's machines are listed for actionlint, which takes a label that it does not know for a
    misspelt one.
    """
    workflows = train.workflows
    if workflows is None:
        return {}
    jobs = Jobs(train, workflows)
    files = {"tests": _tests(train, workflows, jobs)}
    if hardware := _hardware(train, workflows, jobs):
        files["hardware"] = hardware
    if workflows.registries:
        files["release"] = _release(workflows, jobs)
    if workflows.site:
        files["docs"] = _docs(train, jobs.site(workflows.site.branch, workflows.site.build))
    if workflows.relay:
        files["relay"] = _relay(jobs.relayed(workflows.relay))
    versions = {action.commit: action.version for action in workflows.actions}
    texts = {
        str(workflows.folder / f"{name}.yml"): _HEAD + _text({"name": name, **data}, versions)
        for name, data in files.items()
    }
    if labels := workflows.own_labels:
        known = {"self-hosted-runner": {"labels": labels}}
        texts[str(workflows.folder.parent / "actionlint.yaml")] = _HEAD + _text(known, versions)
    return texts


def _common(train: Train, workflows: Workflows) -> list[Gate]:
    """Return the gates with a session whose cells run on common machines."""
    return [
        gate
        for gate in train.gates
        if gate.session
        and ANY_CELL not in gate.cells
        and not any(workflows.is_own(cell) for cell in gate.cells)
    ]


def _tests(train: Train, workflows: Workflows, jobs: Jobs) -> dict[str, Any]:
    return {
        "on": {"push": {"branches": [train.main, "release/**"]}, "pull_request": {}},
        "permissions": {},
        "concurrency": {
            "group": "tests-${{ github.ref }}",
            "cancel-in-progress": "${{ github.event_name == 'pull_request' }}",
        },
        "jobs": {
            "check": jobs.check(),
            **{
                gate.name: jobs.sessions(gate.session, gate.cells)
                for gate in _common(train, workflows)
            },
        },
    }


def _hardware(train: Train, workflows: Workflows, jobs: Jobs) -> dict[str, Any]:
    found = {
        cell: jobs.on_target(gate.session, cell)
        for gate in train.gates
        if gate.session
        for cell in gate.cells
        if workflows.is_own(cell) or (gate not in _common(train, workflows) and cell != ANY_CELL)
    }
    if not found:
        return {}
    if workflows.evidence:
        found["joined"] = jobs.joined(list(found))
    return {
        "on": {"workflow_dispatch": {}, "schedule": [{"cron": f"17 3 * * {workflows.weekday}"}]},
        "permissions": {},
        "concurrency": {"group": "hardware", "cancel-in-progress": False},
        "jobs": found,
    }


def _release(workflows: Workflows, jobs: Jobs) -> dict[str, Any]:
    found = {"build": jobs.build()}
    before = "build"
    if workflows.platforms:
        found["installed"] = jobs.installed()
        before = "installed"
    for registry in workflows.registries:
        found[registry.name] = jobs.publish(registry.name, registry.upload, before)
        before = f"{registry.name}-has-it"
        found[before] = jobs.fetched(registry.simple, registry.name)
    return {
        "on": {"push": {"tags": ["v*"]}},
        "permissions": {},
        "concurrency": {"group": "release-${{ github.ref }}", "cancel-in-progress": False},
        "jobs": found,
    }


def _docs(train: Train, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what publishes the main branch and each release, but no candidate."""
    return {
        "on": {"push": {"branches": [train.main], "tags": ["v*", "!v*-*"]}},
        "permissions": {},
        # One after the other: each adds to what the one before it left.
        "concurrency": {"group": "docs", "cancel-in-progress": False},
        "jobs": {"publish": job},
    }


def _relay(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what PyTorch's cross-repository CI relay starts (PyTorch's RFC 50).

    The relay sends GitHub's own events of PyTorch's repository on: ``event_type``, and the whole
    event as ``payload``.
    """
    event = f"{PAYLOAD}.event_type"
    number = f"{PAYLOAD}.payload.pull_request.number"
    text = f"format('{{0}} {{1}}', {event}, {number} || {PAYLOAD}.payload.after)"
    return {
        "run-name": f"PyTorch: ${{{{ {text} }}}}",
        "on": {"repository_dispatch": {"types": ["pull_request", "push"]}},
        "permissions": {},
        # A newer commit of a pull request ends the run of the older one, and so does its end.
        "concurrency": {
            "group": f"relay-${{{{ {number} || github.run_id }}}}",
            "cancel-in-progress": True,
        },
        "jobs": {"pytorch": job},
    }


def _text(data: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Return YAML, in which each commit of an action has its version beside it."""
    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(_commented(data, versions), out)
    return out.getvalue()


def _commented(value: Any, versions: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        found = CommentedMap({key: _commented(item, versions) for key, item in value.items()})
        version = versions.get(str(value.get("uses", "")).partition("@")[2])
        if version is not None:
            found.yaml_add_eol_comment(version, "uses", column=0)
        return found
    if isinstance(value, list | tuple):
        return CommentedSeq(_commented(item, versions) for item in value)
    # Versions such as 3.10 are no numbers.
    if isinstance(value, str) and value.replace(".", "").isdigit():
        return DoubleQuotedScalarString(value)
    return value
