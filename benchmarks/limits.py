"""The machine's own limits, measured in the run that quotes them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

__all__ = ["Limits", "measure_limits"]

_SOURCE: Final = Path(__file__).with_name("limits.c")
_SECONDS: Final = 0.4


@dataclass(frozen=True, slots=True)
class Limits:
    """What nothing on this machine can exceed; None where it could not be measured.

    Attributes:
        float32_flops: fused multiply-adds, two operations each, per second.
        bfloat16_flops: products of bfloat16 pairs into float32, per second; None without the
            instruction.
        read_bytes: bytes read from memory per second.
        problem: why nothing could be measured; empty where it could.
    """

    float32_flops: float | None = None
    bfloat16_flops: float | None = None
    read_bytes: float | None = None
    problem: str = ""

    def flops(self, dtype: torch.dtype) -> float | None:
        """Return the limit for products of a dtype; float32's where it has none of its own."""
        if dtype == torch.bfloat16 and self.bfloat16_flops is not None:
            return self.bfloat16_flops
        return self.float32_flops


def measure_limits(threads: int) -> Limits:
    """Compile and run the loops of limits.c on as many threads as the contestants use."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return Limits(problem="no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "limits")
        built = subprocess.run(
            [compiler, "-O3", "-march=native", "-pthread", str(_SOURCE), "-o", str(program)],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode != 0:
            return Limits(problem=f"limits.c does not compile here: {built.stderr.strip()[:200]}")
        result = subprocess.run(
            [str(program), str(threads), str(_SECONDS)], capture_output=True, text=True, check=True
        )
    measured = {
        name: float(value) for name, value in (line.split() for line in result.stdout.splitlines())
    }
    return Limits(
        measured.get("float32_flops"), measured.get("bfloat16_flops"), measured.get("read_bytes")
    )
