"""The command ``torchyard demo``: a whole small run, and what it says of bad input."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from torchyard_attention.demo import _command, _comparison, command
from torchyard_attention.demo._settings import Budget, Size

SIZE = Size(layers=1, heads=2, head_dim=8, length=64, window=16, batch=4)
BUDGET = Budget(train_seconds=5.0, evaluations=2, compare_seconds=1.0, rounds=3, generate=16)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_command, "SIZE", SIZE)
    monkeypatch.setattr(_command, "QUICK", BUDGET)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    return path


def _run(*args: object) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args])


def _quick(text: Path, *args: object) -> Result:
    out = text.parent / "out"
    return _run("--quick", "--steps", 25, "--device", "cpu", "--text", text, "--out", out, *args)


def test_json_is_one_document_that_holds_everything(text: Path) -> None:
    result = _quick(text, "--json")
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    assert data["ok"]
    assert data["failures"] == []
    assert data["training"]["steps"] == 25
    assert data["training"]["held_out_end"] < data["training"]["held_out_start"] - 0.1
    assert data["training"]["loss_end"] < data["training"]["loss_start"] - 0.1
    assert data["comparison"]["parity"]["holds"]
    assert len(data["comparison"]["training"]["ours"]) == 3
    assert data["comparison"]["generation"]["stock_over_ours"] > 0
    refused = [trial for trial in data["comparison"]["attention"] if trial["refusal"]]
    assert [trial["name"] for trial in refused] == ["torch flex_attention"]
    assert {decision["contract"] for decision in data["decisions"].values()} == {
        "attention/1",
        "attention_backward/1",
    }
    assert all(decision["chosen"] for decision in data["decisions"].values())


def test_a_run_shows_decisions_losses_text_and_comparison(text: Path) -> None:
    result = _quick(text, "--prompt", "the quick")
    assert result.exit_code == 0, result.output
    for words in (
        "training, backward (attention_backward/1): ",
        "generation, one byte (attention/1): ",
        "held out",
        "the quick",
        "training step",
        "does not support backward on CPU",
        "both sides agree",
        "ok: the loss fell",
    ):
        assert words in result.output


def test_the_curve_is_saved_as_a_table(text: Path) -> None:
    assert _quick(text).exit_code == 0
    with (text.parent / "out" / "loss.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(26))
    assert float(rows[0]["held_out_nats_per_byte"]) > float(rows[25]["held_out_nats_per_byte"])


def test_without_matplotlib_the_table_stays_and_the_remedy_is_told(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = _quick(text)
    assert result.exit_code == 0, result.output
    assert 'pip install "torchyard-attention[demo]"' in result.output
    assert (text.parent / "out" / "loss.csv").is_file()
    assert not (text.parent / "out" / "loss.png").exists()


def test_with_matplotlib_a_plot_is_saved(text: Path) -> None:
    pytest.importorskip("matplotlib")
    assert _quick(text).exit_code == 0
    assert (text.parent / "out" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_with_nothing_to_compare_fails(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise _comparison.NothingToCompareError("stock torch computes this in no formulation")

    monkeypatch.setattr("torchyard_attention.demo._run.compare", refuse)
    result = _quick(text)
    assert result.exit_code == 1
    assert "FAILED: nothing was compared: stock torch computes this in no" in result.output


def test_a_loss_that_does_not_fall_fails(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchyard_attention.demo._training._RATE", 0.0)
    result = _quick(text)
    assert result.exit_code == 1
    assert "FAILED: the held-out loss did not fall" in result.output


def test_bfloat16_trains_and_agrees(text: Path) -> None:
    result = _quick(text, "--dtype", "bfloat16", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--text", "nothing/here"], "--text: expected a file or a folder, got nothing"),
        (["--text", sys.executable], "--text: expected UTF-8 text, got a binary file"),
        (["--device", "abacus"], "--device: expected one of auto, cpu"),
        (["--prompt", ""], "--prompt: expected some text, got nothing"),
        (["--steps", "3", "--seconds", "3"], "--steps, --seconds: expected at most one"),
        (["--steps", "0"], "--steps"),
        (["--out", "/dev/null/out"], "--out: expected a folder that can be written"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_input_is_refused_and_named(args: list[str], words: str, tmp_path: Path) -> None:
    out = [] if "--out" in args else ["--out", tmp_path / "out"]
    result = _run("--quick", *out, *args)
    assert result.exit_code == 2
    assert words in result.output


def test_a_short_text_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("short")
    result = _run("--text", tmp_path / "short.txt", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "--text: expected at least 660 bytes, got 5" in result.output
