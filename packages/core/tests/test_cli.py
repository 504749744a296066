"""The torchyard command, as a program and within this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from torchyard.cli._env import redact
from torchyard.cli._main import cli
from torchyard.cli._output import answer_only
from torchyard.cli._progress import Steps

from .broken_plugins import plugin
from .conftest import Make
from .distribution import Distribution, torchyard
from .toys import GOOD, TOY

needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")


def _command(name: str, *, package: str = "", code: str = "", command: str = "toy") -> Distribution:
    manifest = f"""
[[commands]]
name = "{command}"
target = "{{package}}.toy:command"
help = "Do as {name} does."
"""
    return plugin(name, manifest=manifest, code=code)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a site folder with the toys."""
    for distribution in (TOY, GOOD):
        distribution.install(tmp_path)
    return tmp_path


@pytest.fixture
def invoke(make_registry: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs the command in this process, on a registry of just the toys."""
    registry = make_registry(TOY, GOOD)
    monkeypatch.setattr("torchyard._registry._process", [registry])

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments)

    return run


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["explain", "--help"], ["--version"]])
def test_help_and_version_are_there(invoke: Callable[..., Result], arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert result.stdout


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


def test_an_unknown_command_is_a_usage_error(invoke: Callable[..., Result]) -> None:
    result = invoke("explian")
    assert result.exit_code == 2
    assert "No such command 'explian'" in result.stderr


def test_explain_shows_every_candidate(invoke: Callable[..., Result]) -> None:
    result = invoke("explain", "toy", "--device", "cpu", "--dtype", "float64", "--shape", "16")
    assert result.exit_code == 0, result.stderr
    assert "toy/1 on cpu: toy.reference (decided by order)" in result.stdout
    assert "request: device=cpu, dtype=float64, size=16" in result.stdout
    for words in ("good.fast", "refused", "E_DTYPE: float32 only, got float64", "convert first"):
        assert words in result.stdout


def test_explain_as_json_is_the_decision(invoke: Callable[..., Result]) -> None:
    data = json.loads(invoke("explain", "toy/1", "--set", "dtype=float64", "--json").stdout)
    assert data["chosen"] == "toy.reference"
    assert [item["name"] for item in data["trace"]] == ["good.fast", "toy.reference"]


def test_explain_fails_where_nothing_serves(invoke: Callable[..., Result]) -> None:
    result = invoke("explain", "toy", "--dtype", "float64", "--use", "good.fast")
    assert result.exit_code == 3
    assert "toy/1 on cpu: no implementation (decided by argument)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["toy", "--set", "colour=red"], "toy/1 has no field colour; its fields:"),
        (["toy", "--set", "colour=red"], "dtype: float32 or float64 (default float32)"),
        (["toy", "--set", "colour"], "--set: expected KEY=VALUE, got 'colour'"),
        (["toy", "--shape", "big"], "shape: expected a number, got 'big'"),
        (["toi"], "contract 'toi': no installed component defines it; known contracts: toy/1"),
    ],
)
def test_explain_says_what_it_cannot_read(
    invoke: Callable[..., Result], arguments: list[str], words: str
) -> None:
    result = invoke("explain", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_decisions_are_dumped_compared_and_followed(site: Path) -> None:
    old, new = site / "old.json", site / "new.json"
    without = {"TORCHYARD_PLUGINS": "-good"}
    for path, settings in ((old, {}), (new, without)):
        result = torchyard(
            "decisions", "dump", "--device", "cpu", "-o", str(path), site=site, settings=settings
        )
        assert result.returncode == 0, result.stderr
    same = torchyard("decisions", "diff", str(old), str(old), site=site)
    assert (same.returncode, same.stdout) == (0, "no decision differs\n")
    changed = torchyard("decisions", "diff", str(old), str(new), "--json", site=site)
    assert changed.returncode == 1
    data = json.loads(changed.stdout)
    mine = [change for change in data["changes"] if change["contract"] == "toy/1"]
    assert {(change["kind"], change["old"], change["new"]) for change in mine} == {
        ("changed", "good.fast", "toy.reference")
    }
    assert data["made_with"]["plugin good"] == ["1.0", "1.0 (blocked)"]
    table = torchyard("decisions", "diff", str(old), str(new), site=site)
    assert "cpu float32 large" in table.stdout
    followed = torchyard(
        "explain", "toy", "--json", site=site, settings={"TORCHYARD_LOCK": str(new)}
    )
    decision = json.loads(followed.stdout)
    assert (decision["chosen"], decision["source"]) == ("toy.reference", "lock")


def test_a_dump_goes_to_stdout_where_no_file_is_named(site: Path) -> None:
    result = torchyard("decisions", "dump", "--device", "cpu", site=site)
    assert json.loads(result.stdout)["decisions"]["toy/1"]["cpu float32 small"] == "good.fast"


@pytest.mark.parametrize(
    "arguments",
    [["diff", "gone.json", "gone.json"], ["dump", "-o", "no/such/folder/x.json"]],
    ids=["diff", "dump"],
)
def test_a_file_that_is_not_there_is_one_line(
    invoke: Callable[..., Result], arguments: list[str]
) -> None:
    result = invoke("decisions", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")


def _ids(result: Result) -> set[tuple[str, str]]:
    return {(row["id"], row["device"]) for row in json.loads(result.stdout)}


def test_features_are_filtered(invoke: Callable[..., Result]) -> None:
    everything = _ids(invoke("features", "--json"))
    core = _ids(invoke("features", "--json", "--component", "core"))
    assert core
    assert core == {row for row in everything if row[0].startswith("core.")}
    on_cpu = invoke("features", "--json", "--device", "cpu")
    assert ("attention.flex_attention", "cpu") in _ids(on_cpu)
    assert ("attention.flex_attention", "*") not in _ids(on_cpu)
    beta = json.loads(invoke("features", "--json", "--stage", "beta").stdout)
    assert {row["stage"] for row in beta} == {"beta"}
    assert "no feature matches" in invoke("features", "--component", "gone").stdout
    assert "core.registry" in invoke("features").stdout


def test_doctor_is_sound_where_the_plugins_are(site: Path) -> None:
    result = torchyard("doctor", "--json", site=site)
    data = json.loads(result.stdout)
    mine = {
        check["name"]: check
        for checks in data["sections"].values()
        for check in checks
        if check["name"].startswith(("toy", "good"))
    }
    assert mine["good: speed"]["status"] == "pass"
    assert mine["toy"]["status"] == mine["good"]["status"] == "pass"
    assert "bold" not in result.stdout
    text = torchyard("doctor", site=site)
    assert "good: speed" in text.stdout


@needs_torch
def test_doctor_shows_what_serves_each_contract(site: Path) -> None:
    sections = json.loads(torchyard("doctor", "--json", site=site).stdout)["sections"]
    decisions = {check["name"]: check for check in sections["decisions"]}
    assert decisions["toy/1 on cpu"]["status"] == "pass"
    assert decisions["toy/1 on cpu"]["text"] == "good.fast 2 of 4, toy.reference 2 of 4"
    assert sections["torch"][0]["status"] == "pass"


@pytest.mark.skipif(bool(find_spec("torch")), reason="torch is installed")
def test_doctor_without_torch_verifies_no_device(site: Path) -> None:
    result = torchyard("doctor", "--json", site=site)
    assert result.returncode == 0
    sections = json.loads(result.stdout)["sections"]
    assert sections["torch"] == [
        {
            "name": "torch",
            "status": "unverified",
            "text": "not installed",
            "hint": "install torch to run components",
        }
    ]
    devices = {check["name"]: check["status"] for check in sections["devices"]}
    assert devices["cpu"] == devices["cuda"] == "unverified"


def test_doctor_fails_on_a_torch_that_cannot_be_imported(site: Path) -> None:
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("import sys\nsys.exit('no driver')\n")
    result = torchyard("doctor", "--json", site=site)
    assert result.returncode == 1
    check = json.loads(result.stdout)["sections"]["torch"][0]
    assert check["text"] == "installed, but cannot be imported: SystemExit: no driver"


def test_doctor_finds_settings_that_nobody_reads(site: Path) -> None:
    settings = {
        "TORCHYARD_USES": "x",
        "TORCHYARD_USE": "toi=gone.x",
        "TORCHYARD_PLUGINS": "-nobody",
        "TORCHYARD_GOOD_ISA": "avx2",
    }
    result = torchyard("doctor", "--json", site=site, settings=settings)
    checks = json.loads(result.stdout)["sections"]["settings"]
    texts = {(check["name"], check["text"], check["hint"]) for check in checks}
    assert (
        "TORCHYARD_USES",
        "no such setting; nothing reads it",
        "did you mean TORCHYARD_USE?",
    ) in texts
    found = {(name, text) for name, text, _ in texts}
    assert ("TORCHYARD_USE", "no installed contract 'toi'") in found
    assert ("TORCHYARD_USE or TORCHYARD_ENLIST", "no installed plugin of 'gone.x'") in found
    assert ("TORCHYARD_PLUGINS", "no installed plugin 'nobody'") in found
    assert not any("TORCHYARD_GOOD_ISA" in name for name, _ in found)


def test_doctor_fails_on_a_lock_that_is_not_there(site: Path) -> None:
    settings = {"TORCHYARD_LOCK": str(site / "gone.json")}
    result = torchyard("doctor", "--json", site=site, settings=settings)
    assert result.returncode == 1
    assert "gone.json" in json.loads(result.stdout)["sections"]["settings"][0]["text"]


def test_env_is_complete_and_tells_nobodys_name(site: Path) -> None:
    home = site / "alice"
    home.mkdir()
    settings = {
        "HOME": str(home),
        "USER": "alicesmith",
        "TORCHYARD_LOCK": str(home / "lock.json"),
        "TORCHYARD_SPECIAL": "for alicesmith",
        "OMP_NUM_THREADS": "2",
    }
    text = torchyard("env", site=site, settings=settings)
    assert text.returncode == 0, text.stderr
    result = torchyard("env", "--json", site=site, settings=settings)
    data = json.loads(result.stdout)
    assert data["settings"]["TORCHYARD_LOCK"] == "~/lock.json"
    assert data["settings"]["TORCHYARD_SPECIAL"] == "for <user>"
    assert data["threads"]["OMP_NUM_THREADS"] == "2"
    assert data["distributions"]["torchyard-good"] == "1.0"
    assert data["plugins"]["good"] == "1.0 discovered"
    for output in (text.stdout, result.stdout):
        assert "alicesmith" not in output
        assert str(home) not in output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/House/alice/x", "~/x"),
        ("/House/alice", "~"),
        ("/House/alices/x", "/House/alices/x"),
        ("by alice, malice", "by <user>, malice"),
        ("a b", "a b"),
    ],
)
def test_homes_and_names_are_redacted_and_nothing_else(text: str, expected: str) -> None:
    assert redact({"k": [text, 3]}, "/House/alice", ("alice", "a")) == {"k": [expected, 3]}


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
    monkeypatch.setattr("torchyard.cli._progress._PATIENCE_SECONDS", patience)
    with Steps(2) as steps:
        steps.step("first")
        time.sleep(0.3)
        steps.step("second")
    assert ("first" in terminal.text) == shown
