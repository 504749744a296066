"""The recorder sees every collective, whoever issues it, and is gone without a trace when off."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from packages.collectives.tests.ranks import run_ranks
from torchyard_collectives.flight import disable, dump, enable
from torchyard_collectives.flight._dump.read import read_folder
from torchyard_collectives.flight._history import RankHistory, Record
from torchyard_collectives.flight._record.recorder import Recorder


def _recorded(folder: str, calls: Callable[[], object], **settings: Any) -> RankHistory:
    """Record some calls on this rank; every rank's dump is in the folder afterwards."""
    enable(folder, **settings)
    try:
        calls()
        dump(wait=10)
    finally:
        disable()
    return read_folder(Path(folder)).histories[dist.get_rank()]


def _ops(history: RankHistory) -> list[str]:
    return [record.op for record in history.records]


def _world() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def _every_function() -> None:
    rank, size = _world()
    x = torch.ones(4)
    many = [torch.ones(2) for _ in range(size)]
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    dist.broadcast(x, src=1)
    dist.reduce(x, dst=0)
    dist.all_gather([torch.ones(4) for _ in range(size)], x)
    dist.all_gather_into_tensor(torch.ones(4 * size), x)
    dist.reduce_scatter_tensor(torch.ones(2), torch.ones(2 * size))
    dist.gather(x, [torch.ones(4) for _ in range(size)] if rank == 0 else None, dst=0)
    dist.scatter(torch.ones(2), many if rank == 0 else None, src=0)
    dist.all_to_all_single(torch.ones(2 * size), torch.ones(2 * size))
    dist.barrier()
    if rank == 0:
        dist.send(x, dst=1, tag=3)
    elif rank == 1:
        dist.recv(x, src=0, tag=3)


def _sees_every_function(folder: str) -> list[Record]:
    return list(_recorded(folder, _every_function).records)


_EXPECTED = (
    "all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter_tensor gather "
    "scatter all_to_all_single barrier"
).split()


def test_every_function_of_torch_distributed_is_seen_with_its_place(tmp_path: Path) -> None:
    records = run_ranks(2, _sees_every_function, str(tmp_path))
    for rank, seen in enumerate(records):
        assert [record.op for record in seen] == [*_EXPECTED, ("send", "recv")[rank]]
        assert {record.site[0].function for record in seen} == {"_every_function"}
        assert {record.site[0].file for record in seen} == {__file__}
        assert [record.sequence for record in seen] == [*range(len(_EXPECTED)), 0]
        assert all(record.state == "completed" for record in seen)
        assert all(r.entered <= (r.started or 0) <= (r.completed or 0) for r in seen)
        assert dict(seen[0].arguments) == {"reduce": "max"}
        assert dict(seen[1].arguments) == {"root": "1"}
        assert str(seen[4].outputs[0]) == "float32[8]"
        assert (seen[-1].peer, seen[-1].tag) == (1 - rank, 3)


def _train_with_ddp() -> None:
    model = DistributedDataParallel(nn.Linear(3, 2))
    model(torch.ones(5, 3)).sum().backward()


def _functional() -> None:
    with torch.inference_mode():
        group: Any = dist.group.WORLD
        functional.wait_tensor(functional.all_reduce(torch.ones(4), "sum", group))


def _inference() -> None:
    with torch.inference_mode():
        dist.all_reduce(torch.ones(4))


def _compiled() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        group: Any = dist.group.WORLD
        return functional.all_reduce(x * 2, "sum", group) + 1

    torch.compile(step, backend="aot_eager", fullgraph=True)(torch.ones(4))


def _shards() -> None:
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 4)
    fully_shard(model)
    model(torch.ones(2, 4)).sum().backward()
    dist.all_reduce(torch.ones(1))


_ISSUERS: dict[str, Callable[[], None]] = {
    "ddp's reducer": _train_with_ddp,
    "functional": _functional,
    "inference mode": _inference,
    "compiled": _compiled,
    "fsdp2": _shards,
}


def _sees(folder: str, issuer: str) -> list[Record]:
    return list(_recorded(folder, _ISSUERS[issuer]).records)


@pytest.mark.parametrize("issuer", list(_ISSUERS))
def test_collectives_that_python_does_not_issue_are_seen(issuer: str, tmp_path: Path) -> None:
    records = run_ranks(2, _sees, str(tmp_path), issuer)
    for seen in records:
        reduced = [record for record in seen if record.op == "all_reduce"]
        assert reduced
        if issuer == "fsdp2":
            ops = {record.op for record in seen}
            assert {"all_gather_into_tensor", "reduce_scatter_tensor"} <= ops
        # Also where C++ issues it there is a line of the program above.
        assert all(record.site and record.site[0].file == __file__ for record in reduced)


class _Loopback(dist.ProcessGroup):
    """A group made in Python, whose only rank has everything already."""

    def allreduce(self, tensors: Any, options: Any = None) -> Any:
        if float(tensors[0].sum()) < 0:
            raise RuntimeError("nothing below zero")
        return _over(tensors)

    def getGroupName(self) -> str:
        return "loopback"


def _over(value: Any) -> Any:
    from torch._C._distributed_c10d import _create_work_from_future

    future: Any = torch.futures.Future()
    future.set_result(value)
    return _create_work_from_future(future)


def _sees_a_group_made_in_python(folder: str) -> tuple[list[Record], bool]:
    from torch.distributed import distributed_c10d

    def calls() -> None:
        group: Any = _Loopback(0, 1)
        distributed_c10d._register_process_group("loopback", group)
        group.allreduce([torch.ones(3)])
        functional.all_reduce(torch.ones(5), "sum", group)
        with pytest.raises(RuntimeError, match="below zero"):
            group.allreduce([-torch.ones(3)])
        left.append(group)

    left: list[Any] = []
    history = _recorded(folder, calls)
    return [r for r in history.records if r.group == "loopback"], "allreduce" in vars(left[0])


def test_a_group_made_in_python_is_seen_and_then_left_alone(tmp_path: Path) -> None:
    records, still_covered = run_ranks(1, _sees_a_group_made_in_python, str(tmp_path))[0]
    assert [str(record.inputs[0]) for record in records] == [
        "float32[3]", "float32[5]", "float32[3]",
    ]  # fmt: skip
    assert [str(record.state) for record in records] == ["completed", "completed", "failed"]
    assert records[2].error == "nothing below zero"
    assert not still_covered


def _keeps(folder: str) -> tuple[list[int], int, int]:
    def calls() -> None:
        for _ in range(25):
            dist.all_reduce(torch.ones(1))

    history = _recorded(folder, calls, capacity=10)
    sequences = [record.sequence for record in history.records]
    return sequences, history.dropped, history.groups["0"].issued


def test_the_ring_keeps_the_last_calls_and_counts_the_others(tmp_path: Path) -> None:
    assert run_ranks(1, _keeps, str(tmp_path))[0] == (list(range(15, 25)), 15, 25)


def _counts_unfinished(folder: str) -> int:
    """Record while another thread looks at the same calls all the time."""
    from torchyard_collectives.flight import _session

    enable(folder, capacity=20_000)
    assert _session._session is not None
    recorder = _session._session.recorder
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            recorder.sweep()

    # A thread that wants the interpreter waits this long for the one that has it: threads switch in
    # more places so, and the calls do not spend a minute on waiting.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    looker = threading.Thread(target=look)
    looker.start()
    for _ in range(3000):
        dist.all_reduce(torch.ones(1))
    over.set()
    looker.join()
    sys.setswitchinterval(interval)
    deadline = time.monotonic() + 30
    while (left := _unfinished(recorder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    disable()
    return left


def _unfinished(recorder: Recorder) -> int:
    from torchyard_collectives.flight._history import Ending

    return sum(record.state != "completed" for record in recorder.history("", Ending()).records)


@pytest.mark.sweep
def test_no_call_is_lost_between_the_threads_that_look_at_it(tmp_path: Path) -> None:
    assert run_ranks(1, _counts_unfinished, str(tmp_path)) == [0]


def _lets_go_of_tensors(folder: str) -> int:
    import gc
    import weakref

    def calls() -> None:
        x = torch.ones(1000)
        seen.append(weakref.ref(x))
        dist.all_reduce(x)

    seen: list[weakref.ref[torch.Tensor]] = []
    enable(folder)
    calls()
    deadline = time.monotonic() + 30
    while (kept := sum(ref() is not None for ref in seen)) and time.monotonic() < deadline:
        time.sleep(0.1)
        gc.collect()
    disable()
    return kept


def test_no_tensor_is_kept_for_the_recorder(tmp_path: Path) -> None:
    assert run_ranks(1, _lets_go_of_tensors, str(tmp_path)) == [0]
