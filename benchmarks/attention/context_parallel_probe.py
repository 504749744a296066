"""One rank of a measurement of attention over ranks.

``python -m benchmarks.attention.context_parallel_probe RANK WORLD MEETING MASK SCHEDULE BACKEND
LENGTH HEADS DTYPE ROUNDS``: rank 0 prints the median seconds of the slowest rank, the growth of
each rank's resident set to its peak, its inputs' bytes, and the greatest error against one process.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

import torchyard_collectives  # noqa: F401  (registers its backend)
from torchyard_attention import create_block_mask, flex_attention, masks
from torchyard_context_parallel import Sharding, context_parallel_attention

__all__: list[str] = []

_HEAD_DIM: Final = 64
_BLOCK: Final = 128
# Beyond, one process would take too long for a check.
_CHECKED: Final = 8192


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _whole(heads: int, length: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, heads, length, _HEAD_DIM, generator=generator).to(dtype) for _ in range(4)
    ]


def _ours(mask_name: str, schedule: str, sharding: Sharding, length: int) -> Callable[..., Tensor]:
    mask = None
    if mask_name == "causal":
        mask = create_block_mask(masks.causal, None, None, length, length, "cpu", _BLOCK)
    world = dist.group.WORLD
    assert world is not None

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if world.size() == 1:
            out: Tensor = flex_attention(query, key, value, block_mask=mask)
            return out
        spread: Tensor = context_parallel_attention(
            query, key, value, mesh=world, block_mask=mask, schedule=schedule, sharding=sharding
        )
        return spread

    return attend


def _of_torch(mask_name: str) -> Callable[..., Tensor]:
    from torch.distributed.tensor.experimental import context_parallel

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    # torch's puts another function into torch.nn.functional while the context lasts.
    # It cuts whole buffers in place and wants at least one; the call's are this rank's parts.
    buffer = torch.zeros(2 * dist.get_world_size())

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with context_parallel(mesh, buffers=[buffer], buffer_seq_dims=[0]):
            return functional.scaled_dot_product_attention(
                query, key, value, is_causal=mask_name == "causal"
            )

    return attend


def _measure(
    attend: Callable[..., Tensor], inputs: list[Tensor], grad: Tensor, rounds: int
) -> tuple[float, int, list[Tensor]]:
    seconds = []
    found: list[Tensor] = []
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    grown = 0
    for _ in range(rounds):
        found = []
        dist.barrier()
        start = time.perf_counter()
        out = attend(*inputs)
        found = [out.detach(), *torch.autograd.grad(out, inputs, grad)]
        slowest = torch.tensor(time.perf_counter() - start)
        grown = grown or _status("VmHWM") - before
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        seconds.append(float(slowest))
    return statistics.median(seconds), grown, found


def _error(found: list[Tensor], mask_name: str, whole: list[Tensor], sharding: Sharding) -> float:
    """Return the greatest difference from one process, over the size of what is compared."""
    inputs = [tensor.requires_grad_() for tensor in whole[:3]]
    query, key, value = inputs
    out = functional.scaled_dot_product_attention(
        query, key, value, is_causal=mask_name == "causal"
    )
    expected = [out.detach(), *torch.autograd.grad(out, inputs, whole[3])]
    worst = torch.zeros(())
    for got, wanted in zip(found, expected, strict=True):
        mine = sharding.take(wanted, dist.get_rank(), 2)
        worst = torch.maximum(worst, (got - mine).abs().max().float() / wanted.abs().max().float())
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return float(worst)


def _main(words: list[str]) -> None:
    rank, world = int(words[0]), int(words[1])
    mask_name, schedule, backend, length, heads, dtype_name, rounds = words[3:]
    dtype = getattr(torch, dtype_name)
    torch.set_num_threads(torch.get_num_threads())
    dist.init_process_group(
        backend,
        store=dist.FileStore(words[2], world),  # type: ignore[attr-defined]
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=300),
    )
    if mask_name == "causal" and schedule != "torch":
        sharding = Sharding.head_tail(int(length), world, multiple=_BLOCK)
    else:
        sharding = Sharding.contiguous(int(length), world, multiple=_BLOCK)
    whole = _whole(int(heads), int(length), dtype)
    *inputs, grad = (sharding.take(tensor, rank, 2) for tensor in whole)
    inputs = [tensor.requires_grad_() for tensor in inputs]
    if int(length) > _CHECKED:
        whole = []
    attend = (
        _of_torch(mask_name)
        if schedule == "torch"
        else _ours(mask_name, schedule, sharding, int(length))
    )
    # What is imported, built and bound on the first call is not the call's.
    warm = [t.detach()[:, :, :_BLOCK].clone().requires_grad_() for t in inputs]
    torch.autograd.grad(flex_attention(warm[0], warm[1], warm[2]).sum(), warm)
    seconds, grown, found = _measure(attend, inputs, grad, int(rounds))
    answer: dict[str, Any] = {"seconds": seconds}
    if whole:
        answer["error"] = _error(found, mask_name, whole, sharding)
    for name, number in (
        ("bytes", grown),
        ("inputs", sum(tensor.nbytes for tensor in (*inputs, grad))),
    ):
        numbers: list[Any] = [None] * world
        dist.all_gather_object(numbers, number)
        answer[name] = numbers
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(answer))


if __name__ == "__main__":
    _main(sys.argv[1:])
