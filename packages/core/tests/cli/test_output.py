"""What the command writes where: answers, noise, markup, bars."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from packages.core.tests.broken_plugins import plugin
from packages.core.tests.distribution import torchyard
from torchyard._progress import Steps
from torchyard.cli._output import answer_only


def test_settings_that_nobody_can_read_are_one_line(site: Path) -> None:
    (site / "broken.toml").write_text("use = 3\n")
    broken = {"TORCHYARD_CONFIG": str(site / "broken.toml")}
    for arguments in (["plugins"], ["explain", "toy"], ["doctor"]):
        result = torchyard(*arguments, site=site, settings=broken)
        assert result.returncode == 2
        assert result.stderr.startswith("Error: ")
        assert "broken.toml: use: expected a string" in result.stderr
        assert result.stderr.count("\n") == 1
    listed = torchyard("--help", site=site, settings=broken)
    assert listed.returncode == 0
    assert "Commands of plugins are not listed" in listed.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["plugins"],
        ["plugins", "-v", "--activate"],
        ["explain", "toy"],
        ["features"],
        ["env"],
    ],
    ids=" ".join,
)
def test_json_is_the_only_thing_on_stdout(site: Path, arguments: list[str]) -> None:
    noise = "import os, atexit\nprint('noise')\nos.write(1, b'noise')\nos.system('echo noise')\n"
    noise += "atexit.register(os.write, 1, b'noise')\natexit.register(print, 'noise')\n"
    for name in ("toy", "checks"):
        path = site / "torchyard_good" / f"{name}.py"
        path.write_text(noise + path.read_text())
    result = torchyard(*arguments, "--json", site=site)
    json.loads(result.stdout)
    assert "\x1b" not in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    "arguments", [["plugins"], ["plugins", "--json"], ["features"], ["--help"]]
)
def test_a_reader_that_leaves_early_is_no_error(arguments: list[str]) -> None:
    program = [sys.executable, "-m", "torchyard", *arguments]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait()


def test_words_of_a_plugin_are_no_markup(site: Path) -> None:
    plugin("odd", code="raise RuntimeError('[bold]loud[/] [link=x]')\n").install(site)
    result = torchyard("plugins", "--activate", site=site, settings={"COLUMNS": "300"})
    assert "[bold]loud[/] [link=x]" in result.stdout


def test_answer_only_keeps_what_is_printed_off_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with answer_only(True):
        print("printed")
        subprocess.run([sys.executable, "-c", "print('by a child')"])
    click.echo("the answer")
    out, err = capfd.readouterr()
    assert out == "the answer\n"
    assert set(err.split("\n")) == {"printed", "by a child", ""}


class _Terminal:
    """A stderr that says it is a terminal, and keeps what it is given."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(("patience", "shown"), [(0.0, True), (60.0, False)])
def test_a_bar_is_shown_only_to_who_waits(
    monkeypatch: pytest.MonkeyPatch, patience: float, shown: bool
) -> None:
    import time

    terminal: Any = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("torchyard._progress._PATIENCE_SECONDS", patience)
    with Steps(2) as steps:
        steps.step("first")
        time.sleep(0.3)
        steps.step("second")
    assert ("first" in terminal.text) == shown
