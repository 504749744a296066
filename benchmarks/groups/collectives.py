"""Collectives of two and of four processes on this host: shm beside gloo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.measuring.findings import Finding, at_least
from benchmarks.measuring.ranks import in_ranks

__all__ = ["measure_collectives"]

# Case -> how many times gloo's speed is asked.
_TARGET: Final = {
    "all_reduce 4 B": 20.0,
    "all_reduce 256 KiB": 10.0,
    "all_reduce 64 MiB": 4.0,
}
_TARGET_SHARE: Final = 0.7
# Four processes on two cores collapse where they spin for one another: then gloo is faster.
_NO_COLLAPSE: Final = 1.0


def measure_collectives(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Measure both backends in the same processes.

    Args:
        quick: few rounds.
        progress: receives the name of each step.
    """
    findings: list[Finding] = []
    for world in (2, 4):
        progress(f"{world} processes")
        found = in_ranks("groups.collectives_probe", world, str(3 if quick else 15))
        findings += _told(world, found)
    return findings


def _told(world: int, found: dict[str, Any]) -> Iterator[Finding]:
    title = f"{world} processes"
    if "failed" in found:
        yield Finding(title, "shm", found["failed"], None)
        return
    for case, result in found.items():
        name = f"{title}: {case}"
        for backend, seconds in result["seconds"].items():
            yield Finding(name, backend, "us", seconds * 1e6)
        asked = _TARGET.get(case) if world == 2 else _NO_COLLAPSE
        if asked is None:
            yield Finding(name, "shm", "times gloo's speed", result["ratio"])
        else:
            yield at_least(name, "shm", "times gloo's speed", result["ratio"], asked)
        if result["share"] is not None:
            quantity = "share of reading and writing the tensors once"
            yield at_least(name, "shm", quantity, result["share"], _TARGET_SHARE)
        elif case == "all_reduce 64 MiB" and world == 2:
            agreeing = f"{result['agreeing']} of {result['rounds']}"
            yield Finding(name, "shm", f"UNVERIFIED: memory's probes agreed in {agreeing}", None)
