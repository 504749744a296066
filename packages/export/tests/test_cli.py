"""``torchyard export`` makes artifacts, proves them again, and ends in 1 where one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from torchyard_export._cli import command

_MODELS = "packages.export.tests.models.small"
_FACTORY = f"{_MODELS}:factory"


def test_a_factory_becomes_a_file_that_verifies(tmp_path: Path) -> None:
    out, page = tmp_path / "a.tya", tmp_path / "a.html"
    runner = CliRunner()
    made = runner.invoke(command, [_FACTORY, "--out", str(out), "--html", str(page)])
    assert made.exit_code == 0, made.output
    assert "Scorer: passed" in made.output
    assert f"written: {out}, {out.stat().st_size} bytes" in made.output
    assert "<h1>Scorer" in page.read_text()
    found = runner.invoke(command, ["verify", str(out)])
    assert found.exit_code == 0, found.output
    assert "author not proven" in found.output
    data = json.loads(runner.invoke(command, ["verify", str(out), "--json"]).output)
    assert data["passed"]
    assert [stage["name"] for stage in data["stages"]] == ["pt2"]


def test_a_refusal_is_printed_and_ends_in_one(tmp_path: Path) -> None:
    runner = CliRunner()
    name = f"{_MODELS}:training"
    found = runner.invoke(command, [name])
    assert found.exit_code == 1
    assert "training-behaviour" in found.output
    page = tmp_path / "a.html"
    words = [name, "--json", "--html", str(page)]
    data = json.loads(runner.invoke(command, words).output)
    assert not data["passed"]
    assert "refused" in page.read_text()
    assert "training-behaviour" in page.read_text()
    assert data["findings"][0]["kind"] == "training-behaviour"
    assert data["findings"][0]["remedy"]


def test_dimensions_can_be_given_as_words() -> None:
    words = [_FACTORY, "-d", "x.0=batch:1..3", "-d", "x.1=time:2..4", "--json"]
    found = CliRunner().invoke(command, words)
    assert json.loads(found.output)["dimensions"] == ["batch:1..3", "time:2..4"]


def test_a_file_that_is_no_artifact_ends_in_one(tmp_path: Path) -> None:
    path = tmp_path / "a.tya"
    path.write_bytes(b"PK")
    found = CliRunner().invoke(command, ["verify", str(path)])
    assert found.exit_code == 1
    assert found.output.startswith("refused: archive:")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["nowhere:made"], "expected MODULE:FACTORY"),
        ([f"{_MODELS}:scorer"], "expected a dict of export's arguments"),
        ([_FACTORY, "-d", "x=time"], "expected x.1=time:1..1000"),
        ([_FACTORY, "--accept", "all"], "accept: expected kinds of findings"),
        ([_FACTORY, "--out", "nowhere/a.tya"], "nowhere/a.tya: there is no folder nowhere"),
        ([_FACTORY, "-t", "onxx"], "onxx: expected one of aotinductor, "),
        (["models.py:factory"], "named as in an import: models:factory"),
        ([f"{_MODELS}:WEIGHTED"], "expected a function that returns (model, a"),
        ([f"{_MODELS}:failing"], "small:failing raised OSError: no weights"),
        ([f"{_MODELS}:bare"], "args: expected a call's arguments as (x,), got"),
    ],
)
def test_words_that_are_not_understood_are_refused(words: list[str], match: str) -> None:
    found = CliRunner().invoke(command, words)
    assert found.exit_code == 1
    assert match in found.output


def test_an_unknown_word_shows_the_form_of_a_command() -> None:
    found = CliRunner().invoke(command, ["models"])
    assert found.exit_code == 2
    assert "'models': expected MODULE:FACTORY, such as models:make, or make, runner" in found.output


def test_a_program_of_one_size_is_reported() -> None:
    found = CliRunner().invoke(command, [f"{_MODELS}:fixed"])
    assert "the program takes the example's sizes alone" in found.output
    assert "nothing was written: --out FILE keeps the artifact" in found.output
