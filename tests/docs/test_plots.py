"""The site's pictures of benchmarks say what a run found, where, when, and how to run it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.site.plots import RUNS, Bar, bars_of, plots_page

_MACHINE = {
    "date": "2026-11-29",
    "command": "python -m benchmarks linear",
    "processor": "An Abacus",
    "cores": 2,
    "threads": 2,
    "torch": "2.13.0",
    "torchyard": "1.0.0",
    "commit": "0123456789abcdef",
}


def _finding(case: str, who: str, quantity: str, value: float | None) -> dict[str, Any]:
    return {"suite": "linear", "case": case, "who": who, "quantity": quantity, "value": value}


def _contestant(case: str, who: str, times: float) -> dict[str, Any]:
    return {"suite": "decode", "case": case, "contestant": who, "times_ours": times}


_ROWS = [
    _finding("a row", "the memory's limit", "times torch's speed", 2.0),
    _finding("a row", "torch linear", "milliseconds", 3.0),
    _finding("a row", "torchyard", "times torch's speed", 1.25),
    _finding("a row", "torchyard", "UNVERIFIED: times torch's peak", None),
]


def _write(folder: Path, rows: list[dict[str, Any]], **machine: Any) -> Path:
    folder.mkdir()
    data = {"machine": {**_MACHINE, **machine}, "rows": rows}
    (folder / "run.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def test_bars_are_the_ratios_to_the_fastest_of_stock_torch() -> None:
    assert bars_of(_ROWS) == [
        Bar("a row", "the memory's limit", 2.0),
        Bar("a row", "torchyard", 1.25),
    ]
    of_attention = [
        *(_contestant("short", who, times) for who, times in (("torchyard", 1.0), ("sdpa", 1.5))),
        _contestant("short", "flex", 1.2),
        # Every other contestant was refused, so that there is nothing to compare with.
        _contestant("alone", "torchyard", 1.0),
    ]
    assert bars_of(of_attention) == [Bar("short", "torchyard", 1.2)]


def test_a_picture_has_its_machine_date_command_and_numbers(tmp_path: Path) -> None:
    page = plots_page(tmp_path / "plots", _write(tmp_path / "runs", _ROWS))
    for said in ("An Abacus, 2 cores", "2026-11-29", "01234567", "$ python -m benchmarks linear"):
        assert said in page
    assert "![linear: 2 bars, from 1.25 to 2.00 times torch](plots/linear.svg)" in page
    assert "<td>a row</td><td>torchyard</td><td>1.25</td>" in page
    picture = (tmp_path / "plots" / "linear.svg").read_bytes()
    assert b"1.25" in picture
    assert b"a row" in picture
    plots_page(tmp_path / "again", tmp_path / "runs")
    assert (tmp_path / "again" / "linear.svg").read_bytes() == picture


def test_runs_that_say_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="got none"):
        plots_page(tmp_path / "plots", tmp_path / "empty")
    quick = _write(tmp_path / "quick", _ROWS, command="python -m benchmarks --quick linear")
    with pytest.raises(ValueError, match="got one with --quick"):
        plots_page(tmp_path / "plots", quick)
    without = _write(tmp_path / "without", _ROWS[1:2])
    with pytest.raises(ValueError, match="linear: expected ratios, got none"):
        plots_page(tmp_path / "plots", without)


def test_the_runs_that_are_kept_can_be_run_again(tmp_path: Path) -> None:
    runs = sorted(RUNS.glob("*.json"))
    assert runs
    for path in runs:
        command = json.loads(path.read_text(encoding="utf-8"))["machine"]["command"]
        assert command.endswith(f"--json docs/measurements/runs/{path.name}")
    assert plots_page(tmp_path / "plots").count("```console") >= len(runs)
