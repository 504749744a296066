"""What is measured beside the times of contestants."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

__all__ = ["Finding", "at_least", "at_most", "in_fresh_process"]

_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Finding:
    """One quantity.

    Attributes:
        case: of what.
        who: the implementation or the contestant.
        quantity: what it is, with its unit.
        value: the number; None: it could not be had, and the quantity says why.
        asked: the bound.
        enough: whether the value keeps the bound; None without one.
    """

    case: str
    who: str
    quantity: str
    value: float | None
    asked: float | None = None
    enough: bool | None = None


def at_most(case: str, who: str, quantity: str, value: float, asked: float) -> Finding:
    """Return a quantity that may not be larger."""
    return Finding(case, who, quantity, value, asked, value <= asked)


def at_least(case: str, who: str, quantity: str, value: float, asked: float) -> Finding:
    """Return a quantity that may not be smaller."""
    return Finding(case, who, quantity, value, asked, value >= asked)


def in_fresh_process(module: str, *words: str) -> dict[str, Any]:
    """Run a module of this package in a process of its own; return the JSON of its last line.

    It uses as many threads as this one.

    A process that ends in an error gives ``{"failed": the last line of its errors}``.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *words],
        cwd=_ROOT,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return {"failed": lines[-1][:160] if lines else f"exit status {done.returncode}"}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
