"""Dumps of torch's own recorder: those of gloo too, on which torch's analyser raises KeyError."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard_collectives.flight import Kind, Outcome, analyse, read_folder
from torchyard_collectives.flight._history import State


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a stock dump of two gloo ranks, as pickles and as JSON."""
    folder = tmp_path_factory.mktemp("torch")
    (folder / "pickle").mkdir()
    (folder / "json").mkdir()
    program = Path(__file__).with_name("torch_job.py")
    subprocess.run(
        [sys.executable, str(program), str(folder)],
        env={
            **os.environ,
            "TORCH_FR_BUFFER_SIZE": "100",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "GLOO_SOCKET_IFNAME": "lo",
        },
        check=True,
        timeout=600,
    )
    return folder


@pytest.mark.sweep
def test_torchs_own_analyser_cannot_read_the_dump(dumped: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", dumped / "pickle"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "KeyError: ('0', 0)" in result.stderr


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_missing_ranks_in_a_dump_of_gloo_are_named(form: str, dumped: Path) -> None:
    found = read_folder(dumped / form)
    report = analyse(list(found.histories.values()), problems=found.problems)
    assert report.outcome is Outcome.FAULT
    first = report.findings[0]
    assert (first.kind, first.ranks, first.sequence) == (Kind.NOT_ENTERED, (1,), 3)
    assert "all_reduce(float32[7])" in first.text
    assert first.calls[0].rank == 0
    if form == "pickle":
        assert first.calls[0].site[0].file.endswith("torch_job.py")


def test_calls_that_are_over_are_known_although_gloo_leaves_them_scheduled(dumped: Path) -> None:
    found = read_folder(dumped / "pickle")
    history = found.histories[0]
    states = [record.state for record in history.records if record.group == "0"]
    assert states[:3] == [State.COMPLETED] * 3
    # With a second group pg_config has the ranks of neither.
    assert history.groups["0"].ranks == (0, 1)
    assert any("taken from who used it" in problem for problem in found.problems)


def _entry(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "record_id": number, "pg_id": 0, "process_group": ("7", "tp"), "collective_seq_id": 1,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce", "is_p2p": False,
        "time_created_ns": 10 + number, "input_sizes": [[2, 3]], "input_dtypes": ["BFloat16"],
        "output_sizes": [[2, 3]], "output_dtypes": ["BFloat16"], "state": "completed",
        "time_discovered_started_ns": 11, "time_discovered_completed_ns": 12, "retired": True,
    } | changes  # fmt: skip


def _job(folder: Path, entries: dict[int, list[dict[str, Any]]]) -> Any:
    for rank, own in entries.items():
        data = {
            "version": "2.10",
            "entries": own,
            "pg_config": {"7": {"name": "7", "desc": "tp", "ranks": "[4, 5]"}},
            "pg_status": {},
        }
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(data, 2))
    found = read_folder(folder)
    return analyse(list(found.histories.values()), world_size=6), found.histories


def test_a_subgroups_ranks_coalesced_calls_and_messages_are_read(tmp_path: Path) -> None:
    together = [_entry(0), _entry(1, profiling_name="nccl:_all_gather_base")]
    sent = _entry(
        2, is_p2p=True, profiling_name="nccl:send 0->1", state="started", retired=False,
        time_discovered_completed_ns=None,
    )  # fmt: skip
    report, histories = _job(tmp_path, {4: [*together, sent], 5: together})
    first, second = histories[4].records[::-1]
    assert first.op == "coalesced all_reduce, all_gather_into_tensor"
    assert [str(spec) for spec in first.inputs] == ["bfloat16[2, 3]"] * 2
    assert (second.op, second.peer) == ("send", 5)
    found = report.findings[0]
    assert (found.kind, found.ranks) == (Kind.NOT_ENTERED, (5,))


def test_mismatches_in_torchs_dumps_are_named(tmp_path: Path) -> None:
    report, _ = _job(tmp_path, {4: [_entry(0)], 5: [_entry(0, input_dtypes=["Float"])]})
    assert (report.findings[0].kind, report.findings[0].ranks) == (Kind.DTYPE, (4, 5))


def test_frames_that_many_calls_share_are_read_once(tmp_path: Path) -> None:
    frames = [{"filename": "train.py", "line": 3, "name": "step"}] * 200
    entries = [_entry(number, collective_seq_id=number + 1, frames=frames) for number in range(500)]
    _, histories = _job(tmp_path, {4: entries})
    sites = {id(record.site) for record in histories[4].records}
    assert len(sites) == 1
    assert len(histories[4].records[0].site) == 16
