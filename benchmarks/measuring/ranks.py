"""Probes that are a group of processes on this host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

__all__ = ["in_ranks"]

_ROOT: Final = Path(__file__).parents[2]
_SECONDS: Final = 600


def in_ranks(module: str, world: int, *words: str, threads: int = 1) -> dict[str, Any]:
    """Run a module of this package once per rank; return the JSON of rank 0's last line.

    Each process is given its rank, the number of ranks, the path of a file to meet at, and the
    words. Any that ends in an error gives ``{"failed": the last line of its errors}``.

    Args:
        module: its dotted name below ``benchmarks``.
        world: how many ranks.
        words: its other arguments.
        threads: of each process.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", f"benchmarks.{module}"),
                    *(str(rank), str(world), f"{folder}/meeting", *words),
                ],
                cwd=_ROOT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"},
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
            return {"failed": lines[-1][:160] if lines else f"exit status {process.returncode}"}
    answer: dict[str, Any] = json.loads(outputs[0][0].splitlines()[-1])
    return answer
