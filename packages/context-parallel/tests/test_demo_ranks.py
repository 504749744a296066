"""The demonstration trains on real processes, and says so when the losses part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from torchyard_context_parallel.demo import command
from torchyard_context_parallel.demo._command import _Outcome
from torchyard_context_parallel.demo._training import Step


@pytest.mark.sweep
def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} squared is {n * n}, give or take.\n" for n in range(400)))
    words = ("--steps", "4", "--length", "512", "--json")
    run = subprocess.run(
        [sys.executable, "-m", "torchyard", "demo-ranks", "--text", str(text), *words],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert len(found["alone"]) == len(found["together"]) == 4
    assert len(found["differences"]) == 4
    assert 0 <= max(found["differences"]) < 1e-4
    assert found["failures"] == []


_LEAVES = """
import os, queue, sys
from pathlib import Path
from torchyard_attention.demo import Size, collect_text
from torchyard_context_parallel.demo._processes import _rank
from torchyard_context_parallel.demo._training import Plan
folder = Path(sys.argv[1])
text = collect_text(folder / "text.txt", 256)
plan = Plan(Size(layers=1, heads=2, head_dim=8, length=256, window=64, batch=1), 2, 0, "ring")
steps = queue.SimpleQueue()
_rank(0, 1, "gloo", 1, str(folder / "meeting"), plan, text, steps)
assert steps.qsize() == 2
here = "/proc/self/task"
tasks = [Path(here, task, "comm").read_text() for task in os.listdir(here)]
assert not any("gloo" in task for task in tasks), tasks
"""


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")
def test_a_rank_leaves_no_thread_of_its_group(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"{n} squared is {n * n}.\n" for n in range(400)))
    run = subprocess.run(
        [sys.executable, "-c", _LEAVES, str(tmp_path)],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr


def test_losses_that_differ_or_do_not_fall_are_failures() -> None:
    falling = [Step(3.0, 0.1), Step(2.0, 0.1)]
    assert _Outcome(falling, falling).failures() == []
    (parted,) = _Outcome(falling, [Step(3.0, 0.1), Step(2.1, 0.1)]).failures()
    assert "differ by 5.0e-02" in parted
    late = [Step(3.0 - n / 10, 0.1) for n in range(10)]
    assert _Outcome(late, [*late[:-1], Step(2.11, 0.1)]).failures() == []
    (parted,) = _Outcome(late, [*late[:-1], Step(2.2, 0.1)]).failures()
    assert "more than 2e-02" in parted
    flat = [Step(3.0, 0.1), Step(3.0, 0.1)]
    assert _Outcome(flat, flat).failures() == ["the loss did not fall"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--schedule", "hybrid"], "expected a schedule for ranks in one row"),
        (["--text", "nowhere"], "got nothing at nowhere"),
        (["--ranks", "0"], "0 is not in the range"),
    ],
)
def test_options_without_a_demonstration_are_refused(words: list[str], message: str) -> None:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 2
    assert message in result.output
