"""Everything that is compiled for an architecture, and the compilation of one of it by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.compiled._cache import FiguresCache
from torchyard_triton.compiled._compilation import compile_launch
from torchyard_triton.compiled._figures import Figures
from torchyard_triton.compiled._linear import linear_specimens
from torchyard_triton.compiled._older import add_missing
from torchyard_triton.compiled._pointwise import pointwise_specimens
from torchyard_triton.compiled._recurrent import recurrent_specimens
from torchyard_triton.compiled._specimen import Specimen
from torchyard_triton.compiled._specimens import PROGRAMS, launches
from torchyard_triton.compiled._topk import topk_specimens
from torchyard_triton.compiled._workers import Job
from torchyard_triton.tuning import tiles_of

__all__ = ["compile_job", "specimens"]

# Has no matrix product.
_WITHOUT_MATRIX = frozenset({"attention_delta", "attention_merge"})
# Have tiles of fewer rows than the largest matrix instructions take.
_SMALL = frozenset(
    {
        *("attention_exact_forward", "attention_exact_key_gradient"),
        *("attention_exact_query_gradient", "attention_decode", "attention_decode_pages"),
    }
)
# What yields the specimens of other ops than attention, by the architecture's name.
_OTHERS: tuple[Callable[[str], Iterator[Specimen]], ...] = (
    topk_specimens,
    linear_specimens,
    pointwise_specimens,
    recurrent_specimens,
)


def specimens(architecture: str, programs: Iterable[str] = PROGRAMS) -> Iterator[Specimen]:
    """Yield what is compiled: attention with its programs, then the other ops' kernels.

    Args:
        architecture: whose tiles they have.
        programs: of attention.
    """
    tiles = tiles_of(architecture)
    small = _SMALL | {"attention_varlen"} if tiles["attention_decode"].rows < 64 else _SMALL
    for program in programs:
        for kernel, build in launches(program, tiles=tiles):
            yield Specimen(kernel, program, build, kernel not in _WITHOUT_MATRIX, kernel in small)
    for others in _OTHERS:
        yield from others(architecture)


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
