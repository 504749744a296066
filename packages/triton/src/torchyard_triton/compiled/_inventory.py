"""Everything that is compiled for an architecture, and the compilation of one of it by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import torch

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
from torchyard_triton.tuning import heads_of, table_tiles, tiles_of

__all__ = ["ATTENTION_PROGRAMS", "compile_job", "specimens"]

# Has no matrix product.
_WITHOUT_MATRIX = frozenset({"attention_delta", "attention_merge"})
# Have tiles of fewer rows than the largest matrix instructions take.
_SMALL = frozenset(
    {
        *("attention_exact_forward", "attention_exact_key_gradient"),
        *("attention_exact_query_gradient", "attention_decode", "attention_decode_pages"),
    }
)
# Whose kernels are compiled for heads of other sizes too, besides those with tiles of their own.
_HEADED = frozenset({"sm_90", "sm_100", "gfx942"})
_HEAD_DIMS, _HEAD_PROGRAM = (64, 256), "alibi"
# What stands for those among programs.
_HEADS = "heads"
ATTENTION_PROGRAMS = (*PROGRAMS, _HEADS)
_HEAD_KERNELS = (
    *("attention_forward", "attention_query_gradient", "attention_key_gradient"),
    "attention_captured_gradient",
)
# What yields the specimens of other ops than attention, by the architecture's name.
_OTHERS: tuple[Callable[[str], Iterator[Specimen]], ...] = (
    topk_specimens,
    linear_specimens,
    pointwise_specimens,
    recurrent_specimens,
)


def specimens(
    architecture: str, programs: Iterable[str] = ATTENTION_PROGRAMS
) -> Iterator[Specimen]:
    """Yield what is compiled: attention with its programs, then the other ops' kernels.

    Args:
        architecture: whose tiles they have.
        programs: of attention; ``heads`` is ALiBi with heads of other sizes than 128.
    """
    tiles = tiles_of(architecture)
    small = _SMALL | {"attention_varlen"} if tiles["attention_decode"].rows < 64 else _SMALL
    for program in programs:
        if program == _HEADS:
            yield from _of_other_heads(architecture)
            continue
        for kernel, build in launches(program, tiles=tiles):
            yield Specimen(kernel, program, build, kernel not in _WITHOUT_MATRIX, kernel in small)
    for others in _OTHERS:
        yield from others(architecture)


def _of_other_heads(architecture: str) -> Iterator[Specimen]:
    """Yield kernels for heads of other sizes than 128, in float16."""
    sizes = {*heads_of(architecture), *(_HEAD_DIMS if architecture in _HEADED else ())}
    for head_dim in sorted(sizes):
        program = f"{_HEAD_PROGRAM}-d{head_dim}"
        tiles = {kernel: table_tiles(architecture, kernel, head_dim) for kernel in _HEAD_KERNELS}
        launched = launches(_HEAD_PROGRAM, head_dim=head_dim, dtype=torch.float16, tiles=tiles)
        for kernel, build in launched:
            if kernel in tiles:
                # The keys' gradient has tiles of [keys, rows].
                turned = kernel == "attention_key_gradient"
                length = tiles[kernel].keys if turned else tiles[kernel].rows
                yield Specimen(kernel, program, build, small=length < 64)


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
