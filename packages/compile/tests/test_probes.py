"""A probe's program works, is wrong, refuses or is slow, and a diff says what changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from torchyard_compile._cli import command
from torchyard_compile.probes import Outcome, differences, probe, programs

_PLANTED = {
    "right": ("print('fine')", Outcome.WORKS, ""),
    "wrong": ("assert 1 == 2, 'off by 1'", Outcome.WRONG, "AssertionError: off by 1"),
    "refusing": ("raise NotImplementedError('not here')", Outcome.REFUSES, "not here"),
    "chained": (
        "try:\n    assert False\nexcept AssertionError as e:\n    raise ValueError('given') from e",
        Outcome.REFUSES,
        "ValueError: given",
    ),
    "slow": ("import sys; sys.exit('slow: 9 s for 1')", Outcome.SLOW, "9 s for 1"),
    "dying": ("import os; os.kill(os.getpid(), 9)", Outcome.REFUSES, "without a word"),
}


@pytest.mark.parametrize("name", _PLANTED)
def test_what_is_planted_is_found(name: str, tmp_path: Path) -> None:
    body, outcome, text = _PLANTED[name]
    path = tmp_path / f"{name}.py"
    path.write_text(f'"""A claim."""\n{body}\n')
    (found,) = probe([name], paths={name: path})
    assert (found.name, found.claim, found.outcome) == (name, "A claim.", outcome)
    assert text in found.text
    assert found.seconds > 0


def test_each_program_states_its_claim() -> None:
    assert len(programs()) >= 14
    for path in programs().values():
        assert path.read_text().startswith('"""')
        compile(path.read_text(), str(path), "exec")


@pytest.mark.sweep
def test_what_needs_no_compiler_works_on_this_torch() -> None:
    names = ["exceptions", "mutable_mapping", "graph_break_in_loop"]
    found = {item.name: item for item in probe(names)}
    assert {name: item.outcome for name, item in found.items()} == dict.fromkeys(
        names, Outcome.WORKS
    ), found


@pytest.mark.sweep
def test_another_torchs_outcomes_are_compared(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["exceptions", "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.output)
    assert data["probes"][0]["outcome"] == "works"
    data["probes"][0]["outcome"] = "refuses"
    path = tmp_path / "old.json"
    path.write_text(json.dumps(data))
    again = CliRunner().invoke(command, ["exceptions", "--diff", str(path)])
    assert "exceptions: refuses -> works" in again.output
    (one,) = probe(["exceptions"])
    assert differences([one], [replace(one, seconds=9.0)]) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [(["none"], "expected one of"), (["exceptions", "--diff", "BAD"], "expected what --json")],
)
def test_bad_words_are_named(words: list[str], message: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("[]")
    result = CliRunner().invoke(command, [str(bad) if word == "BAD" else word for word in words])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
