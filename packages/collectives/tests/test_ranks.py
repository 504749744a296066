"""The launcher itself: results by rank, failures told in full, nothing left running."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from .placed import device_of_rank, placed
from .ranks import RanksError, run_ranks


def _summed(factor: int) -> tuple[int, int]:
    x = torch.tensor([dist.get_rank() + 1]) * factor
    dist.all_reduce(x)
    return int(x), os.getpid()


def _filled() -> torch.Tensor:
    return torch.full((300,), float(dist.get_rank()))


def _fails_on_last() -> None:
    if dist.get_rank() == dist.get_world_size() - 1:
        raise ValueError("the last one")


def _misses_one() -> None:
    if dist.get_rank() != 0:
        dist.all_reduce(torch.ones(1))
    else:
        raise LookupError("not entered")


def _dies() -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def _sleeps() -> None:
    if dist.get_rank() == 1:
        time.sleep(60)


def test_results_come_by_rank_and_processes_are_reused() -> None:
    first, second = run_ranks(2, _summed, 10), run_ranks(2, _summed, 1)
    assert [value for value, _ in first] == [30, 30]
    assert [value for value, _ in second] == [3, 3]
    assert [pid for _, pid in first] == [pid for _, pid in second]
    assert len({pid for _, pid in first}) == 2
    assert [value for value, _ in run_ranks(3, _summed, 1)] == [6, 6, 6]


def test_fresh_processes_are_others() -> None:
    kept = {pid for _, pid in run_ranks(2, _summed, 1)}
    assert not kept & {pid for _, pid in run_ranks(2, _summed, 1, fresh=True)}


def test_each_ranks_failure_is_shown() -> None:
    with pytest.raises(RanksError, match="the last one") as caught:
        run_ranks(2, _fails_on_last)
    assert caught.value.reports[0] == "returned"
    assert run_ranks(2, _summed, 1)[0][0] == 3


def test_a_rank_that_waits_for_one_that_failed_is_ended() -> None:
    with pytest.raises(RanksError, match="not entered") as caught:
        run_ranks(2, _misses_one, timeout=600, grace=1, fresh=True)
    # The other would have waited for ten minutes.
    assert "all_reduce" in caught.value.reports[1]


def test_a_dead_rank_is_reported() -> None:
    with pytest.raises(RanksError) as caught:
        run_ranks(2, _dies, fresh=True)
    assert "exit code -9" in caught.value.reports[1]


def test_a_late_rank_is_ended_and_its_stack_shown() -> None:
    with pytest.raises(RanksError) as caught:
        run_ranks(2, _sleeps, timeout=5, fresh=True)
    assert caught.value.reports[0] == "returned"
    assert "_sleeps" in caught.value.reports[1]


def test_tensors_come_back_by_value() -> None:
    for rank, tensor in enumerate(run_ranks(2, _filled)):
        assert torch.equal(tensor, torch.full((300,), float(rank)))


class _Pair(NamedTuple):
    first: torch.Tensor
    second: int


@dataclass(frozen=True)
class _Held:
    tensors: tuple[torch.Tensor, ...]
    name: str


def test_arguments_are_placed_on_a_ranks_device() -> None:
    x, meta = torch.ones(2), torch.device("meta")
    given: list[Any] = [_Held((x, x), "held"), {"x": _Pair(x, 3)}, torch.Size([2]), "text", None]
    held, named, *rest = placed(given, meta)
    assert [tensor.device for tensor in held.tensors] == [meta, meta]
    assert (held.name, named["x"].first.device, named["x"].second) == ("held", meta, 3)
    assert rest == given[2:]
    assert placed(x, torch.device("cpu")) is x


def test_each_rank_has_an_accelerator_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[int] = []

    class Two:
        @staticmethod
        def device_count() -> int:
            return 2

    monkeypatch.setattr(torch, "get_device_module", lambda kind: Two)
    monkeypatch.setattr(torch.accelerator, "set_device_index", current.append)
    assert device_of_rank("cuda", 1) == torch.device("cuda", 1)
    assert current == [1]
    with pytest.raises(ValueError, match="for each rank, got 2 for rank 2; ask for 2 ranks"):
        device_of_rank("cuda", 2)
    assert device_of_rank("cpu", 7) == torch.device("cpu")


def test_ranks_without_their_device_say_so() -> None:
    absent = "xpu" if torch.cuda.is_available() else "cuda"
    with pytest.raises(RanksError, match=f"expected a device of type '{absent}' for each rank"):
        run_ranks(1, _filled, device=absent)
