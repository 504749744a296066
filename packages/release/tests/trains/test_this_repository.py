"""This repository's own train: nothing differs from train.toml, and the guide is right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from packages.release.tests import foreign
from torchyard_release._artifacts._findings import Fault
from torchyard_release._cli import command
from torchyard_release._copies._runbook import read_runbook
from torchyard_release._declaration._parse import parse_train

_ROOT = Path(__file__).parents[4]
_GUIDE = (_ROOT / "docs" / "release.md").read_text(encoding="utf-8")


def test_no_copy_differs_from_the_declaration() -> None:
    result = foreign.release(_ROOT, "check")
    assert result.exit_code == 0, result.output


def test_the_runbook_begins_with_looking_and_ends_with_the_next_version() -> None:
    steps = read_runbook(_ROOT / "RELEASE.md")
    ours = [line for step in steps for line in step.commands if "torchyard release" in line]
    assert len(steps) > 10
    assert [line.split()[2] for line in ours][:2] == ["plan", "status"]
    assert ours[-1].startswith("torchyard release bump")
    assert {"check", "cut", "build", "inspect"} <= {line.split()[2] for line in ours}


def test_the_declaration_in_the_guide_is_one() -> None:
    parts = re.findall(r"```toml\n(.*?)```", _GUIDE, re.DOTALL)
    train = parse_train("\n".join(parts))
    assert train.workflows is not None
    assert [package.name for package in train.packages] == ["orchard", "orchard-press"]


def test_commands_and_findings_in_the_guide_exist() -> None:
    context = click.Context(command)
    named = [shlex.split(code)[2:] for code in re.findall(r"`(torchyard release [^`]+)`", _GUIDE)]
    assert named
    for words in named:
        assert command.get_command(context, words[0]) is not None, words
    table = _GUIDE.partition("## Inspect")[2].partition("## What is recorded")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == set(Fault)


def test_every_step_answers_programs_too() -> None:
    context = click.Context(command)
    for name in ("bump", "build", "check", "cut", "history", "inspect", "plan", "status"):
        step = command.get_command(context, name)
        assert step is not None
        assert "--json" in {option for parameter in step.params for option in parameter.opts}
