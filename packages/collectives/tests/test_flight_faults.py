"""Planted faults are named right, on every backend; ``flight_faults.py`` prints the table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from torchyard_collectives.flight import Kind, analyse, read_folder

from .flight_faults import FAULTS

# Of a further backend those that differ; the others are the same to the analyser.
_FEWER = [name for name in FAULTS if "by" not in name and name != "not entered"]
_PLANTED = [("gloo", fault) for fault in FAULTS] + [("shm", fault) for fault in _FEWER]


@cache
def _table(backend: str) -> tuple[str, ...]:
    """Return the lines that the demonstration prints for a backend."""
    program = Path(__file__).with_name("flight_faults.py")
    faults = [fault for of, fault in _PLANTED if of == backend]
    result = subprocess.run(
        [sys.executable, str(program), "--backend", backend, *faults],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.stdout, result.stderr
    return tuple(result.stdout.splitlines())


@pytest.mark.parametrize(("backend", "fault"), _PLANTED)
def test_a_planted_fault_is_named_with_its_rank(backend: str, fault: str) -> None:
    line = next(line for line in _table(backend) if line[7:24].strip() == fault)
    assert line[25:30] == "right", line


_HUNG_WITH_THE_GIL = """
import ctypes, os, sys, torch, torch.distributed as dist
from torchyard_collectives.flight import enable
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
)
dist.barrier()
enable(folder, timeout=3, gather=1)
dist.all_reduce(torch.ones(4))
if rank == 1:
    print("hangs", flush=True)
    ctypes.PyDLL(None).sleep(100)
dist.all_reduce(torch.ones(4))
"""


def test_a_rank_that_hangs_with_the_gil_held_has_its_journal(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _HUNG_WITH_THE_GIL, str(rank), str(tmp_path)],
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(2)
    ]
    try:
        _wait_for(tmp_path / "job.json")
        assert not (tmp_path / "rank-1.json").exists()
        found = read_folder(tmp_path)
        assert [record.op for record in found.histories[1].records] == ["all_reduce"]
        first = analyse(list(found.histories.values())).findings[0]
        assert (first.kind, first.ranks) == (Kind.NOT_ENTERED, (1,))
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.1)
