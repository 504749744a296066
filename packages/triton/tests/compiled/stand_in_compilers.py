"""What stands in for Triton's compiler in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

from torchyard_triton.compiled import Figures
from torchyard_triton.compiled._workers import Job

__all__ = ["Absent", "crashing"]


def crashing(folder: Path | None, job: Job) -> Figures:
    """Return figures; one kernel ends the process, and another one is too much for it."""
    if job.kernel == "attention_delta":
        os.abort()
    if job.kernel == "attention_merge":
        raise ValueError("out of registers\nin the last of 3 passes")
    return Figures(job.architecture, job.kernel, job.program, 255, 0, 0, "wgmma.mma_async", 1.5)


class Absent:
    """A compiler that ends each process that imports it."""

    def __call__(self, job: Job) -> Figures:
        raise NotImplementedError

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (3,)
