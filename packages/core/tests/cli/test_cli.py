"""The torchyard command: explaining, dumping and comparing decisions, listing features."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from packages.core.tests.distribution import torchyard


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["explain", "--help"], ["--version"]])
def test_help_and_version_are_there(invoke: Callable[..., Result], arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert result.stdout


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


def test_explain_fails_where_nothing_is_supported(invoke: Callable[..., Result]) -> None:
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
