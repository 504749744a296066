"""How much memory calls take: training on a long sequence, and making masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.measuring.findings import Finding, at_most, in_fresh_process

__all__ = ["measure_memory"]

_MEBI: Final = 1 << 20
_HEAD_DIM: Final = 64


def measure_memory(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Measure each call in a fresh process.

    Args:
        quick: shorter sequences.
        progress: receives the name of each step.
    """
    shorter = 16 if quick else 1
    findings: list[Finding] = []
    for part in (_training, _documents, _arbitrary):
        findings += part(shorter, progress)
    return findings


def _training(shorter: int, progress: Callable[[str], None]) -> Iterator[Finding]:
    length, heads = 65536 // shorter, 1
    case = f"forward and backward, causal, bfloat16, S={length} H={heads} D={_HEAD_DIM}"
    asked = 64.0
    for who in ("torchyard", "torch sdpa"):
        progress(f"{case}: {who}")
        found = in_fresh_process("attention.memory_probe", "train", who, str(length), str(heads))
        if "failed" in found:
            yield Finding(case, who, found["failed"], None)
            continue
        computed_by = found["computed_by"] if who == "torchyard" else who
        share = found["bytes"] / (length * heads * _HEAD_DIM)
        # Code and scratch of a fixed size weigh more on a short sequence than the bound allows.
        if who == "torchyard" and shorter == 1:
            yield at_most(case, computed_by, "peak, bytes / (S H D)", share, asked)
        else:
            yield Finding(case, computed_by, "peak, bytes / (S H D)", share)
        yield Finding(case, computed_by, "seconds", found["seconds"])


def _documents(shorter: int, progress: Callable[[str], None]) -> Iterator[Finding]:
    length = 1_000_000 // shorter
    case = f"block mask, causal and documents of 3,000, {length} tokens"
    progress(case)
    found = in_fresh_process("attention.memory_probe", "documents", "torchyard", str(length), "1")
    if "failed" in found:
        yield Finding(case, "torchyard", found["failed"], None)
        return
    yield at_most(case, "torchyard", "seconds", found["seconds"], 1.0)
    yield at_most(case, "torchyard", "peak, MiB", found["bytes"] / _MEBI, 64.0)


def _arbitrary(shorter: int, progress: Callable[[str], None]) -> Iterator[Finding]:
    length = 32768 // shorter
    case = f"block mask, arbitrary mask_mod, {length} tokens"
    for who in ("torchyard", "torch", "torch compiled"):
        progress(f"{case}: {who}")
        found = in_fresh_process("attention.memory_probe", "arbitrary", who, str(length), "1")
        if "failed" in found:
            yield Finding(case, who, f"within 12 GiB: {found['failed']}", None)
            continue
        yield Finding(case, who, "seconds", found["seconds"])
        yield Finding(case, who, "peak, MiB", found["bytes"] / _MEBI)
