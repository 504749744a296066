"""Planted faults are named right, on every backend; ``faults.py`` prints the table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from torchyard_collectives.flight import Kind, analyse, read_folder
from torchyard_collectives.flight._dump.read import Dumps

from .faults import FAULTS

# Of a further backend those that differ; the others are the same to the analyser.
_FEWER = [name for name in FAULTS if "by" not in name and name != "not entered"]
_PLANTED = [("gloo", fault) for fault in FAULTS] + [("shm", fault) for fault in _FEWER]


@cache
def _table(backend: str) -> tuple[str, ...]:
    """Return the lines that the demonstration prints for a backend."""
    program = Path(__file__).with_name("faults.py")
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


@pytest.mark.sweep
@pytest.mark.parametrize(("backend", "fault"), _PLANTED)
def test_a_planted_fault_is_named_with_its_rank(backend: str, fault: str) -> None:
    line = next(line for line in _table(backend) if line[7:24].strip() == fault)
    assert line[25:30] == "right", line


_HUNG_WITH_THE_GIL = """
import ctypes, sys, torch, torch.distributed as dist
from torchyard_collectives.flight import enable
rank, folder = int(sys.argv[1]), sys.argv[2]
enable(folder, timeout=600, gather=0.5)
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
)
dist.all_reduce(torch.ones(4))
if rank == 1:
    ctypes.PyDLL(None).system(b"echo hangs; read line")
dist.all_reduce(torch.ones(4))
"""


@pytest.mark.sweep
def test_a_rank_that_hangs_with_the_gil_held_has_its_journal(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _HUNG_WITH_THE_GIL, str(rank), str(tmp_path)],
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        assert ranks[1].stdout is not None
        assert ranks[1].stdout.readline() == "hangs\n"
        found = _dumped_in_second_call(tmp_path)
        assert not (tmp_path / "rank-1.json").exists()
        assert [record.op for record in found.histories[1].records] == ["all_reduce"]
        histories = list(found.histories.values())
        first = analyse(histories, patience=0).findings[0]
        assert (first.kind, first.ranks) == (Kind.NOT_ENTERED, (1,))
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def _dumped_in_second_call(folder: Path) -> Dumps:
    """Ask for dumps until rank 0's has been collected in its second call."""
    deadline = time.monotonic() + 240
    while True:
        (folder / "request").touch()
        time.sleep(0.2)
        if (folder / "job.json").exists() and (folder / "rank-0.json").exists():
            found = read_folder(folder)
            if len(found.histories[0].records) == 2:
                return found
        assert time.monotonic() < deadline, "rank 0 did not dump"
