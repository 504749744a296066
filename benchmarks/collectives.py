"""Collectives of two and of four processes on this host: shm beside gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.findings import Finding, at_least

__all__ = ["measure_collectives"]

_ROOT: Final = Path(__file__).parents[1]
_SECONDS: Final = 600
# Case -> how many times gloo's speed is asked.
_ASKED: Final = {
    "all_reduce 4 B": 20.0,
    "all_reduce 256 KiB": 10.0,
    "all_reduce 64 MiB": 4.0,
}
_ASKED_SHARE: Final = 0.7
# Four processes on two cores collapse where they spin for one another: then gloo is faster.
_NO_COLLAPSE: Final = 1.0


def measure_collectives(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Measure both backends in the same processes.

    Args:
        quick: few rounds.
        progress: is told what comes next.
    """
    findings: list[Finding] = []
    for world in (2, 4):
        progress(f"{world} processes")
        findings += _told(world, _found(world, 3 if quick else 15))
    return findings


def _found(world: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "benchmarks.collectives_probe"),
                    *(str(rank), str(world), f"{folder}/meeting", str(rounds)),
                ],
                cwd=_ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]
        try:
            outputs = [process.communicate(timeout=_SECONDS) for process in processes]
        finally:
            for process in processes:
                process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode != 0:
            lines = [line for line in errors.splitlines() if line.strip()]
            return {"failed": lines[-1][:160] if lines else f"status {process.returncode}"}
    answer: dict[str, Any] = json.loads(outputs[0][0].splitlines()[-1])
    return answer


def _told(world: int, found: dict[str, Any]) -> Iterator[Finding]:
    title = f"{world} processes"
    if "failed" in found:
        yield Finding(title, "shm", found["failed"], None)
        return
    for case, result in found.items():
        name = f"{title}: {case}"
        for backend, seconds in result["seconds"].items():
            yield Finding(name, backend, "us", seconds * 1e6)
        asked = _ASKED.get(case) if world == 2 else _NO_COLLAPSE
        if asked is None:
            yield Finding(name, "shm", "times gloo's speed", result["ratio"])
        else:
            yield at_least(name, "shm", "times gloo's speed", result["ratio"], asked)
        if result["share"] is not None:
            quantity = "share of reading and writing the tensors once"
            yield at_least(name, "shm", quantity, result["share"], _ASKED_SHARE)
        elif case == "all_reduce 64 MiB" and world == 2:
            agreeing = f"{result['agreeing']} of {result['rounds']}"
            yield Finding(name, "shm", f"UNVERIFIED: memory's probes agreed in {agreeing}", None)
