"""``torchyard flight analyze``: its answer, its document, its page and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner

from packages.collectives.tests.ranks import default_store, run_ranks
from torchyard_collectives.flight import command, disable, enable
from torchyard_collectives.flight._dump.schema import dumps

from .synthetic import Call, Job


def _folder(path: Path, programs: list[list[Call]], *leave_out: int) -> Path:
    job = Job({"0": tuple(range(len(programs)))}, programs)
    for history in job.histories():
        if history.rank not in leave_out:
            (path / f"rank-{history.rank}.json").write_text(dumps(history))
    return path


def _run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, ["analyze", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


_CALL = Call("all_reduce")


def test_a_healthy_job_ends_with_status_0(tmp_path: Path) -> None:
    status, text = _run(_folder(tmp_path, [[_CALL]] * 2))
    assert status == 0
    assert text.startswith("healthy")


def test_a_fault_ends_with_status_1_and_shows_both_call_sites(tmp_path: Path) -> None:
    other = replace(_CALL, dtype="float64", site=9)
    folder = _folder(tmp_path, [[_CALL], [other], [_CALL]])
    page = tmp_path / "page.html"
    status, text = _run(folder, "--html", page)
    assert status == 1
    assert "DTYPE MISMATCH: rank 1" in text
    assert "train.py:1 in train" in text
    assert "train.py:9 in train" in text
    assert "dtype mismatch" in page.read_text()
    status, text = _run(folder, "--json")
    document = json.loads(text)
    assert status == 1
    assert (document["verdict"], document["ranks"]) == ("dtype mismatch", [1])
    assert [call["rank"] for call in document["findings"][0]["calls"]] == [0, 1, 2]


def test_dumps_that_are_missing_end_with_status_3(tmp_path: Path) -> None:
    status, text = _run(_folder(tmp_path, [[_CALL]] * 3, 2), "--world-size", 3)
    assert status == 3
    assert "no dump of rank 2" in text


@pytest.mark.sweep
def test_nothing_to_read_ends_with_status_2(tmp_path: Path) -> None:
    # Through the command line itself, which makes one line of it.
    result = subprocess.run(
        [sys.executable, "-m", "torchyard", "flight", "analyze", tmp_path],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("Error: ")
    assert "rank-0.json" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--patience", "--straggler", "--world-size", "--wait"])
def test_numbers_that_make_no_sense_are_refused(option: str, tmp_path: Path) -> None:
    assert _run(tmp_path, option, "-1")[0] == 2


def _asks_while_it_runs(folder: str, late: bool) -> dict[str, Any] | None:
    """Be a job whose rank 0 asks about it; rank 1 comes late or not."""
    enable(folder, timeout=30)
    try:
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 1:
            default_store().wait([f"asked {late}"])
            dist.all_reduce(torch.ones(1))
            return None
        if late:
            work = dist.all_reduce(torch.ones(1), async_op=True)
            time.sleep(1.2)
        status, text = _run(folder, "--live", "--json", "--wait", 30)
        default_store().set(f"asked {late}", "yes")
        if not late:
            work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        work.wait()
        document: dict[str, Any] = json.loads(text)
        return {**document, "status": status}
    finally:
        disable()


@pytest.mark.parametrize("late", [False, True])
def test_a_running_job_answers(late: bool, tmp_path: Path) -> None:
    document = run_ranks(2, _asks_while_it_runs, str(tmp_path), late)[0]
    assert document is not None
    assert document["analysed"] == [0, 1]
    if late:
        assert (document["status"], document["verdict"]) == (1, "not entered")
        assert document["ranks"] == [1]
        assert "test_command.py" in document["findings"][0]["text"]
    else:
        assert (document["status"], document["verdict"]) == (0, "healthy")


@pytest.mark.sweep
def test_a_program_runs_unchanged_under_the_recorder(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(2))\n"
        "print(sys.argv, __name__)\n"
        "raise SystemExit(7)\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "torchyard_collectives.flight", "train.py", "--steps", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 7, result.stderr
    assert result.stdout == "['train.py', '--steps', '3'] __main__\n"
    data = json.loads((tmp_path / "torchyard-flight" / "rank-0.json").read_text())
    assert data["sites"][0][0]["file"] == "train.py"
    assert data["sites"][0][0]["line"] == 3
    assert data["ending"]["kind"] == "exit"
