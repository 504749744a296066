"""The compilation of one specimen by its names, and what is wrong with its code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from torchyard_triton.architectures import ARCHITECTURES, Architecture
from torchyard_triton.compiled._budgets import budget_of
from torchyard_triton.compiled._cache import FiguresCache
from torchyard_triton.compiled._compilation import compile_launch
from torchyard_triton.compiled._figures import Figures, faults
from torchyard_triton.compiled._older import add_missing
from torchyard_triton.compiled._workers import Job
from torchyard_triton.compiled.specimens import Specimen, specimens

__all__ = ["compile_job", "faults_of"]


@cache
def _by_name(architecture: str) -> dict[tuple[str, str], Specimen]:
    add_missing()
    return {(one.kernel, one.program): one for one in specimens(architecture)}


def compile_job(folder: Path | None, job: Job) -> Figures:
    """Compile one specimen.

    Args:
        folder: of the figures of what was compiled before; None: there is none.
        job: its names.
    """
    specimen = _by_name(job.architecture)[job.kernel, job.program]
    return compile_launch(
        specimen.build(),
        ARCHITECTURES[job.architecture],
        *(job.kernel, job.program, FiguresCache(folder)),
    )


def faults_of(figures: Figures, specimen: Specimen, architecture: Architecture) -> list[str]:
    """Return what is wrong with a specimen's code, by its budget; empty where nothing is."""
    import triton

    return faults(
        figures,
        architecture,
        spills=budget_of(architecture.name, triton.__version__, specimen.kernel),
        matrix=specimen.matrix,
        small=specimen.small,
    )
