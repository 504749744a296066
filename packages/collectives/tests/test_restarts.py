"""Processes that a launcher starts again find one another, and no key of those before them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from torchyard_collectives.flight import read_folder
from torchyard_collectives.shm._errors import RankTimeoutError
from torchyard_collectives.shm._rendezvous.store import fresh_store

_PROGRAM = Path(__file__).with_name("restarted_ranks.py")


@pytest.mark.sweep
@pytest.mark.parametrize("backend", ["shm", "gloo"])
def test_ranks_that_torchrun_restarts_compute_on(backend: str, tmp_path: Path) -> None:
    mark = tmp_path / "ended"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"),
        *("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", str(_PROGRAM), str(mark), "shm"),
    ]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if backend == "gloo":
        # gloo takes addresses that ranks of before the restart left in the store that they share.
        environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr[-4000:]
    assert mark.exists()
    for rank in (0, 1):
        found = Path(f"{mark}-{rank}").read_text(encoding="utf-8").split()
        assert [float(word) for word in found] == [3.0] * 4 + [0.0, 0.0, 1.0, 1.0]
    # The dumps of both starts are there, each in its place.
    folder = Path(f"{mark}-flight")
    again = read_folder(folder / "restart-1").histories
    assert [history.ending.kind for history in again.values()] == ["exit", "exit"]
    assert {history.pid for history in again.values()}.isdisjoint(
        history.pid for history in read_folder(folder).histories.values()
    )


def _meet(store: dist.Store, size: int) -> list[dist.Store]:
    found: dict[int, dist.Store] = {}

    def come(rank: int) -> None:
        found[rank] = fresh_store(store, rank, list(range(size)), timedelta(seconds=240))

    threads = [threading.Thread(target=come, args=(rank,)) for rank in reversed(range(size))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_fresh_store_is_shared_and_holds_nothing_of_earlier_ranks(size: int) -> None:
    store = dist.HashStore()
    for life in range(3):
        # A rank of an earlier life that came and went without being heard.
        store.set(f"called/{size - 1}", f"nobody in life {life}")
        stores = _meet(store, size)
        assert not any(one.check(["left behind"]) for one in stores)
        stores[0].set("left behind", str(life))
        assert [one.get("left behind") for one in stores] == [str(life).encode()] * size


@pytest.mark.parametrize(("rank", "missing"), [(0, 7), (1, 4)])
def test_a_rank_that_does_not_come_is_named(rank: int, missing: int) -> None:
    with pytest.raises(RankTimeoutError, match=f"rank {missing} did not come") as raised:
        fresh_store(dist.HashStore(), rank, [4, 7], timedelta(seconds=0.05))
    assert raised.value.ranks == (missing,)
