"""cpu.shared_memory as the registry sees it, and its functions on many ranks, without torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from torchyard import ReasonCode, probe_platform, registry
from torchyard_collectives.contract import (
    CONTRACT,
    DTYPES,
    Code,
    SharedMemory,
    SharedMemoryRequest,
)
from torchyard_cpu import _shm, shared_memory

# Forks the ranks; each checks its own results. Sizes pass through every path, and through slots
# that are used again.
_PROGRAM = """
import array, os, sys
from torchyard_cpu import _shm as shm
ranks, rounds = int(sys.argv[1]), int(sys.argv[2])
file = shm.make_segment(ranks)
pipes = [os.pipe() for _ in range(ranks)]
children = []
for rank in range(ranks):
    child = os.fork()
    if child == 0:
        break
    children.append(child)
else:
    told = " ".join(f"{pid} {shm.start_time(pid)}" for pid in children).encode()
    for _, write in pipes:
        os.write(write, told)
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    assert not os.path.exists("/dev/shm/torchyard")
    sys.exit(failed)
words = list(map(int, os.read(pipes[rank][0], 100000).split()))
group = shm.join(file, rank, tuple(words[::2]), tuple(words[1::2]))
assert shm.meet(group, 60000) is None
def place(values):
    return values.buffer_info()[0]
for turn in range(rounds):
    for size in (1, 5, 11, 1000, 20_000, 70_001, 400_003 // ranks):
        mine = array.array("q", range(rank + turn, rank + turn + size))
        out = array.array("q", bytes(8 * size))
        assert shm.all_reduce(group, place(mine), place(out), size, 10, 0, 60000) is None
        first = ranks * (ranks - 1) // 2 + ranks * turn
        assert out[0] == first and out[-1] == first + ranks * (size - 1), (size, out[0], out[-1])
        assert out[size // 2] == first + ranks * (size // 2)
        whole = array.array("q", bytes(8 * size * ranks))
        incoming = tuple(
            word for r in range(ranks) for word in (place(whole) + 8 * size * r, 8 * size)
        )
        assert shm.move(group, 5, 0, 8 * size, (place(mine), 8 * size), incoming, 60000) is None
        for r in range(ranks):
            assert whole[size * r] == r + turn
            assert whole[size * r + size - 1] == r + turn + size - 1
    after = (rank + 1) % ranks
    sent = shm.send(group, after, turn, place(mine), 8 * size)
    heard = shm.receive(group, -1, turn, place(out), 8 * size)
    assert shm.wait(group, sent, 60000) == (after, None)
    assert shm.wait(group, heard, 60000) == ((rank - 1) % ranks, None)
    assert out[0] == (rank - 1) % ranks + turn
assert shm.barrier(group, 60000) is None
os._exit(0)
"""


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 2), (2, 4), (5, 2), (8, 2), (16, 1)])
def test_many_ranks_agree_on_few_cores(ranks: int, rounds: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(ranks), str(rounds)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_registry_resolves_the_contract_to_the_native_module() -> None:
    opened = registry().resolve(CONTRACT, SharedMemoryRequest("cpu", 2))
    memory: SharedMemory = opened()
    assert memory is _shm
    assert memory.MAX_RANKS == shared_memory.MAX_RANKS
    assert all(memory.reduces(number, 0) for number in range(len(DTYPES)))


def test_an_unsupported_request_is_declined_with_the_reason() -> None:
    platform = probe_platform()
    for request, where, code, words in (
        (SharedMemoryRequest("cuda", 2), platform, ReasonCode.DEVICE, "moves tensors on cpu"),
        (SharedMemoryRequest("cpu", 65), platform, ReasonCode.SHAPE, "at most 64 ranks"),
        (
            SharedMemoryRequest("cpu", 2),
            replace(platform, system="Darwin"),
            ReasonCode.DEPENDENCY,
            "got Darwin",
        ),
    ):
        verdict = shared_memory.supports(request, where)
        assert not verdict.supported
        assert verdict.code is code
        assert words in verdict.text


def test_wrong_arguments_raise() -> None:
    for wrong, kind, words in (
        (lambda: _shm.make_segment(65), ValueError, "ranks: expected 1 to 64, got 65"),
        (lambda: _shm.barrier(object(), 1), ValueError, "PyCapsule"),
        (lambda: _shm.reduces(13, 0), ValueError, "dtype: expected 0 to 12, got 13"),
        (lambda: _shm.join(-1, 0, (1,), (1,)), OSError, "Bad file descriptor"),
        (lambda: _shm.join(0, 1, (1,), (1,)), ValueError, "rank: expected less than 1, got 1"),
    ):
        with pytest.raises(kind, match=words):
            wrong()


def test_a_process_that_never_was_is_lost_at_once() -> None:
    file = _shm.make_segment(2)
    pid = 1 << 22
    group = _shm.join(file, 0, (1, pid), (_shm.start_time(1), 7))
    failure = _shm.meet(group, 60_000)
    assert failure is not None
    assert (failure[0], failure[1]) == (Code.DIED, 2)
    assert _shm.barrier(group, 1000) is not None
