"""Attention over ranks: memory per rank, and the time of a forward and backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch.distributed as dist

from benchmarks.measuring.findings import Finding
from benchmarks.measuring.ranks import in_ranks

__all__ = ["measure_context_parallel"]

_MEBI: Final = 1 << 20
_SCHEDULES: Final = ("ring", "allgather", "ulysses")


def measure_context_parallel(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Measure groups of processes on this host, and torch's own context parallelism beside them.

    Args:
        quick: short sequences.
        progress: receives the name of each step.
    """
    shorter = 16 if quick else 1
    findings = [*_memory(32768 // shorter, progress)]
    for backend in _backends():
        findings += _times(8192 // shorter, backend, progress)
    findings += _beside_torch(4096 // shorter, progress)
    return findings


def _backends() -> tuple[str, ...]:
    import torchyard_collectives  # noqa: F401  (registers its backend)

    return ("gloo", *(name for name in ("shm",) if name in dist.Backend.backend_list))


def _memory(length: int, progress: Callable[[str], None]) -> Iterator[Finding]:
    case = f"forward and backward, causal, bfloat16, S={length} H=4 D=64"
    for world in (1, 2, 4):
        for schedule in _SCHEDULES if world > 1 else ("ring",):
            progress(f"{case}: {world} ranks, {schedule}")
            words = ("causal", schedule, "gloo", str(length), "4", "bfloat16", "1")
            found = in_ranks("attention.context_parallel_probe", world, *words)
            who = f"{world} ranks, {schedule}" if world > 1 else "1 rank"
            if "failed" in found:
                yield Finding(case, who, found["failed"], None)
                continue
            yield Finding(case, who, "peak per rank, MiB", max(found["bytes"]) / _MEBI)
            yield Finding(case, who, "inputs per rank, MiB", max(found["inputs"]) / _MEBI)


def _times(length: int, backend: str, progress: Callable[[str], None]) -> Iterator[Finding]:
    case = f"forward and backward, causal, bfloat16, S={length} H=8 D=64, {backend}"
    progress(case)
    given = (backend, str(length), "8", "bfloat16", "5")
    alone = in_ranks("attention.context_parallel_probe", 1, "causal", "ring", *given, threads=2)
    yield from _seconds(case, "1 process, 2 threads", alone)
    for schedule in _SCHEDULES:
        progress(f"{case}: {schedule}")
        found = in_ranks("attention.context_parallel_probe", 2, "causal", schedule, *given)
        yield from _seconds(case, f"2 ranks of 1 thread, {schedule}", found)


def _beside_torch(length: int, progress: Callable[[str], None]) -> Iterator[Finding]:
    # Of masks, torch's own knows the causal one, and that not on CPU.
    case = f"forward and backward, no mask, float32, S={length} H=8 D=64, gloo, 2 ranks"
    for schedule in (*_SCHEDULES, "torch"):
        progress(f"{case}: {schedule}")
        words = ("none", schedule, "gloo", str(length), "8", "float32", "5")
        found = in_ranks("attention.context_parallel_probe", 2, *words)
        yield from _seconds(
            case, "torch context_parallel" if schedule == "torch" else schedule, found
        )
    case = case.replace("no mask", "causal")
    words = ("causal", "torch", "gloo", str(length), "8", "float32", "5")
    yield from _seconds(
        case, "torch context_parallel", in_ranks("attention.context_parallel_probe", 2, *words)
    )


def _seconds(case: str, who: str, found: dict[str, Any]) -> Iterator[Finding]:
    if "failed" in found:
        yield Finding(case, who, found["failed"], None)
    else:
        yield Finding(case, who, "ms, median of the slowest rank", found["seconds"] * 1e3)
        yield Finding(case, who, "greatest error of out and gradients", found["error"])
