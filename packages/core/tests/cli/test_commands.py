"""Subcommands that plugins add: listed without them, contained when they are broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packages.core.tests.broken_plugins import plugin
from packages.core.tests.distribution import Distribution, torchyard


def _command(name: str, *, package: str = "", code: str = "", command: str = "toy") -> Distribution:
    manifest = f"""
[[commands]]
name = "{command}"
target = "{{package}}.toy:command"
help = "Do as {name} does."
"""
    return plugin(name, manifest=manifest, code=code)


def test_plugins_commands_are_listed_without_importing_them(site: Path) -> None:
    result = torchyard("--help", site=site)
    assert "Add one. [toy]" in result.stdout
    (site / "torchyard_toy" / "command.py").write_text("raise SystemExit('imported')\n")
    assert torchyard("--help", site=site).stdout == result.stdout


def test_a_plugins_command_runs(site: Path) -> None:
    result = torchyard("toy", "41", site=site)
    assert (result.returncode, result.stdout) == (0, "42\n")
    usage = torchyard("toy", site=site)
    assert usage.returncode == 2
    assert "Missing argument 'NUMBER'" in usage.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('no such driver')\n", "RuntimeError: no such driver"),
        ("import sys\nsys.exit(9)\n", "SystemExit: 9"),
        ("", "expected an attribute 'command', found none"),
        ("command = 3\n", "expected a click command, got int 3"),
    ],
)
def test_a_command_that_cannot_be_loaded_is_one_line_and_no_traceback(
    tmp_path: Path, code: str, words: str
) -> None:
    _command("lame", code=code, command="go").install(tmp_path)
    result = torchyard("go", site=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: command 'go' of plugin 'lame' cannot be loaded: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_command_that_raises_while_it_runs_says_whose_it_is(tmp_path: Path) -> None:
    code = "import click\n\n@click.command()\ndef command():\n    1 / 0\n"
    _command("lame", code=code, command="go").install(tmp_path)
    result = torchyard("go", site=tmp_path)
    assert result.returncode == 1
    assert result.stderr.endswith(
        "ZeroDivisionError: division by zero\nraised by command 'go' of plugin 'lame'\n"
    )


def test_no_plugin_takes_a_built_in_command(site: Path) -> None:
    taker = _command("taker", code="raise SystemExit('taken')\n", command="plugins")
    taker.install(site)
    result = torchyard("plugins", "--json", site=site)
    assert result.returncode == 0
    clash = json.loads(result.stdout)["command_clashes"]
    assert [item["name"] for item in clash] == ["plugins"]
    assert "torchyard has a command of that name, which stays" in clash[0]["text"]
    doctor = json.loads(torchyard("doctor", "--json", site=site).stdout)
    assert "command plugins" in [check["name"] for check in doctor["sections"]["plugins"]]


def test_a_command_that_two_plugins_offer_is_nobodys(site: Path) -> None:
    _command("taker", code="").install(site)
    result = torchyard("toy", "41", site=site)
    assert result.returncode == 2
    assert "'toy' is offered by several plugins, so that none keeps it: taker, toy" in result.stderr
    assert "Add one" not in torchyard("--help", site=site).stdout
    off = {"TORCHYARD_PLUGINS": "-taker"}
    assert torchyard("toy", "41", site=site, settings=off).stdout == "42\n"


def test_a_command_of_a_plugin_that_is_out_of_use_says_why(site: Path) -> None:
    result = torchyard("toy", "41", site=site, settings={"TORCHYARD_PLUGINS": "-toy"})
    assert result.returncode == 2
    assert "command 'toy' belongs to plugin 'toy', which is blocked" in result.stderr
