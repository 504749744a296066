"""One rank of ``benchmarks.groups.collectives``: results checked, then times taken in turns.

``python -m benchmarks.groups.collectives_probe RANK WORLD MEETING ROUNDS``; rank 0 prints JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import torchyard_collectives  # noqa: F401  (registers its backend)
from torchyard_attention.demo._model import seeded_model
from torchyard_attention.demo._settings import Size

__all__: list[str] = []

_MEBI: Final = 1 << 20
_BACKENDS: Final = ("shm", "gloo")
# Calls per turn, by the bytes that one moves: a turn takes milliseconds.
_CALLS: Final = ((1 << 13, 200), (1 << 19, 30), (_MEBI, 10))
# Two probes of the memory that differ by more say nothing: its speed changes for minutes.
_AGREE: Final = 1.15
_SIZE: Final = Size(layers=4, heads=8, head_dim=32, length=64, window=64, batch=2)


def _main() -> None:
    rank, world, meeting, rounds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=FileStore(meeting, world),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    groups = {name: dist.new_group(backend=name) for name in _BACKENDS}
    sizes = [4, 4096, 256 << 10, 64 * _MEBI] if world == 2 else [4, 256 << 10, 16 * _MEBI]
    found = {f"all_reduce {_named(size)}": _all_reduce(groups, size, rounds) for size in sizes}
    if world == 2:
        found[f"all_gather {_named(16 * _MEBI)}"] = _all_gather(groups, 16 * _MEBI, rounds)
        found[f"reduce_scatter {_named(16 * _MEBI)}"] = _reduce_scatter(groups, 16 * _MEBI, rounds)
        found["DDP step"] = _ddp(groups, rounds)
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def _named(size: int) -> str:
    for unit, name in ((_MEBI, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def _turn(group: dist.ProcessGroup, call: Callable[[], object], calls: int) -> float:
    """Return the seconds of one call."""
    dist.barrier(group)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _timed(
    groups: dict[str, dist.ProcessGroup],
    calls_of: Callable[[dist.ProcessGroup], Callable[[], object]],
    moved: int,
    rounds: int,
    probe: Callable[[], object] | None = None,
) -> dict[str, object]:
    """Let the backends take turns; return medians, and medians of the rounds' ratios."""
    calls = next((count for size, count in _CALLS if moved <= size), 2)
    ways = {name: calls_of(group) for name, group in groups.items()}
    for name, way in ways.items():
        _turn(groups[name], way, 2)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    shares = []
    for _ in range(rounds):
        for name, way in ways.items():
            before = 0.0 if probe is None else _turn(groups["shm"], probe, 2)
            seconds[name].append(_turn(groups[name], way, calls))
            if probe is None or name != "shm":
                continue
            after = _turn(groups["shm"], probe, 2)
            if max(before, after) <= _AGREE * min(before, after):
                shares.append((before + after) / 2 / seconds[name][-1])
    ratios = [g / s for g, s in zip(seconds["gloo"], seconds["shm"], strict=True)]
    return {
        "seconds": {name: statistics.median(times) for name, times in seconds.items()},
        "ratio": statistics.median(ratios),
        "share": statistics.median(shares) if len(shares) >= 3 else None,
        "rounds": rounds,
        "agreeing": len(shares),
    }


def _all_reduce(groups: dict[str, dist.ProcessGroup], size: int, rounds: int) -> dict[str, object]:
    world, rank = dist.get_world_size(), dist.get_rank()
    for group in groups.values():
        tensor = torch.arange(size // 4, dtype=torch.float32) % 1000 + rank
        dist.all_reduce(tensor, group=group)
        expected = (torch.arange(size // 4, dtype=torch.float32) % 1000) * world
        assert torch.equal(tensor, expected + world * (world - 1) / 2)
    tensor = torch.zeros(size // 4)

    def calls_of(group: dist.ProcessGroup) -> Callable[[], object]:
        return lambda: dist.all_reduce(tensor, group=group)

    # What no algorithm can spare: that each rank reads its tensor once and writes it once.
    probe = (lambda: tensor.mul_(1.0)) if size >= 64 * _MEBI else None
    return _timed(groups, calls_of, size, rounds, probe)


def _all_gather(groups: dict[str, dist.ProcessGroup], size: int, rounds: int) -> dict[str, object]:
    world, rank = dist.get_world_size(), dist.get_rank()
    mine = torch.full((size // 4 // world,), float(rank))
    out = torch.empty(size // 4)
    for group in groups.values():
        dist.all_gather_single(out.zero_(), mine, group=group)
        assert torch.equal(out.view(world, -1)[:, 0], torch.arange(float(world)))
        assert torch.equal(out.view(world, -1)[:, -1], torch.arange(float(world)))

    def calls_of(group: dist.ProcessGroup) -> Callable[[], object]:
        return lambda: dist.all_gather_single(out, mine, group=group)

    return _timed(groups, calls_of, size, rounds)


def _reduce_scatter(
    groups: dict[str, dist.ProcessGroup], size: int, rounds: int
) -> dict[str, object]:
    world, rank = dist.get_world_size(), dist.get_rank()
    whole = torch.arange(size // 4, dtype=torch.float32) % 1000
    out = torch.empty(size // 4 // world)
    for group in groups.values():
        dist.reduce_scatter_single(out, whole, group=group)
        assert torch.equal(out, whole.view(world, -1)[rank] * world)

    def calls_of(group: dist.ProcessGroup) -> Callable[[], object]:
        return lambda: dist.reduce_scatter_single(out, whole, group=group)

    return _timed(groups, calls_of, size, rounds)


def _ddp(groups: dict[str, dist.ProcessGroup], rounds: int) -> dict[str, object]:
    """Time a step of the demo's model, and say what of it is not the computation."""
    batch = torch.randint(0, 256, (_SIZE.batch, _SIZE.length + 1))

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    def step_of(model: nn.Module) -> Callable[[], float]:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

        def step() -> float:
            logits = model(batch[:, :-1], attend)
            loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            return float(loss.detach())

        return step

    def model() -> nn.Module:
        return seeded_model(_SIZE, seed=0, device=torch.device("cpu"))

    steps = {
        name: step_of(DistributedDataParallel(model(), process_group=group))
        for name, group in groups.items()
    }
    losses = {name: [step() for _ in range(3)] for name, step in steps.items()}
    assert torch.allclose(torch.tensor(losses["shm"]), torch.tensor(losses["gloo"]), rtol=1e-5)
    by_group = {id(group): steps[name] for name, group in groups.items()}
    return _timed(groups, lambda group: by_group[id(group)], 64 * _MEBI, rounds)


if __name__ == "__main__":
    _main()
