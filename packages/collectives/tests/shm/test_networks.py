"""Two hosts: network namespaces with an address each and a cable between, two ranks on either.

Without the right to make namespaces this is UNVERIFIED, and says so.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

_TIMEOUT = 4.0
_PROGRAM = """
import json, os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
import torchyard_collectives
from torchyard_collectives.shm import SharedMemoryError
rank, timeout, rounds, address = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group(
    "shm", init_method=f"tcp://{address}:29517", rank=rank, world_size=4,
    timeout=timedelta(seconds=240),
)
group = dist.group.WORLD
report = {"hosts": group.describe()["hosts"]}
for size in (1, 1000, 500_001):
    tensor = torch.arange(float(size)) * (rank + 1)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(float(size)) * 10), size
gathered = torch.empty(4 * 7)
dist.all_gather_into_tensor(gathered, torch.full((7,), float(rank)))
assert torch.equal(gathered, torch.arange(4.0).repeat_interleave(7))
received = torch.empty(50_000)
works = [
    dist.isend(torch.full((50_000,), float(rank)), (rank + 1) % 4),
    dist.irecv(received, (rank - 1) % 4),
]
for work in works:
    work.wait()
assert (received == (rank - 1) % 4).all()
dist.barrier()
group.set_timeout(timedelta(seconds=timeout))
print("ready", flush=True)
entered = time.time()
try:
    for _ in range(rounds):
        entered = time.time()
        dist.all_reduce(torch.ones(100_000))
        time.sleep(0.01)
except SharedMemoryError as error:
    report |= {
        "error": type(error).__name__, "ranks": error.ranks, "text": str(error),
        "entered": entered, "failed": time.time(),
    }
print(json.dumps(report), flush=True)
if "error" in report:
    os._exit(0)  # the store may be on the lost host
dist.barrier()
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class _Host:
    space: str
    link: str
    address: str


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[tuple[_Host, _Host]]:
    """Make two hosts with a cable between them, and take them away again."""
    if shutil.which("ip") is None:
        pytest.skip("UNVERIFIED: two hosts: there is no ip command; Debian has it as iproute2")
    mark = f"{os.getpid() % 10_000}"
    pair = tuple(
        _Host(f"torchyard{mark}{end}", f"ty{mark}{end}", f"10.213.7.{number}")
        for number, end in enumerate("ab", 1)
    )
    try:
        for host in pair:
            _ip("netns", "add", host.space)
        _ip("link", "add", pair[0].link, "type", "veth", "peer", "name", pair[1].link)
        for host in pair:
            _ip("link", "set", host.link, "netns", host.space)
            _ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", host.link)
            _ip("-n", host.space, "link", "set", host.link, "up")
            _ip("-n", host.space, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        _remove(pair)
        pytest.skip(f"UNVERIFIED: two hosts: no network namespaces here: {error.stderr.strip()}")
    yield pair[0], pair[1]
    _remove(pair)


def _remove(pair: tuple[_Host, ...]) -> None:
    for host in pair:
        subprocess.run(["ip", "netns", "del", host.space], check=False, capture_output=True)


def _start(hosts: tuple[_Host, _Host], rounds: int) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [
                *("ip", "netns", "exec", hosts[rank // 2].space, sys.executable, "-c", _PROGRAM),
                *(str(rank), str(_TIMEOUT), str(rounds), hosts[0].address),
            ],
            env={
                **os.environ,
                "GLOO_SOCKET_IFNAME": hosts[rank // 2].link,
                "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]


def _ready(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"


def _report(process: subprocess.Popen[str]) -> dict[str, object]:
    out, _ = process.communicate(timeout=300)
    return dict(json.loads(out.splitlines()[-1]))


@pytest.fixture
def started(hosts: tuple[_Host, _Host]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the ranks for a long run, and end them."""
    processes = _start(hosts, 100_000)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


# What the others do not hold of it is its end.
@pytest.mark.sweep
def test_a_job_spans_two_hosts(hosts: tuple[_Host, _Host]) -> None:
    processes = _start(hosts, 3)
    reports = [_report(process) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert [report["hosts"] for report in reports] == [[[0, 1], [2, 3]]] * 4


@pytest.mark.sweep
def test_a_hosts_ranks_are_named_when_they_die(started: list[subprocess.Popen[str]]) -> None:
    _ready(started)
    killed = time.time()
    for process in started[2:]:
        # The command that enters a namespace becomes the program: these are the ranks themselves.
        process.send_signal(signal.SIGKILL)
    for process in started[:2]:
        report = _report(process)
        assert report["hosts"] == [[0, 1], [2, 3]]
        assert report["error"] == "RankLostError", report
        assert report["ranks"] == [2, 3], report
        assert "ranks 2 and 3 on another host can no longer be reached" in str(report["text"])
        assert float(str(report["failed"])) - killed < _TIMEOUT + 100


@pytest.mark.sweep
def test_a_hosts_ranks_are_named_when_the_cable_is_cut(
    hosts: tuple[_Host, _Host], started: list[subprocess.Popen[str]]
) -> None:
    _ready(started)
    _ip("-n", hosts[1].space, "link", "set", hosts[1].link, "down")
    waited = []
    for rank, process in enumerate(started):
        report = _report(process)
        assert report["error"] == "RankTimeoutError", report
        assert report["ranks"] == ([2, 3] if rank < 2 else [0, 1]), report
        waited.append(float(str(report["failed"])) - float(str(report["entered"])))
    # A rank that came later than the other of its host hears of that one's timeout.
    assert max(waited[:2]) > _TIMEOUT - 0.5, waited
    assert max(waited[2:]) > _TIMEOUT - 0.5, waited
    assert max(waited) < _TIMEOUT + 100, waited
