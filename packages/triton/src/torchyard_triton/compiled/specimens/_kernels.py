"""``specimens``: all kernels of an architecture, by the contract that they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import torch

from torchyard_attention.contract import BACKWARD, FORWARD
from torchyard_kernels.linear.contract import LINEAR
from torchyard_kernels.pointwise.contract import POINTWISE
from torchyard_kernels.recurrent.contract import BACKWARD as RECURRENT_BACKWARD
from torchyard_kernels.recurrent.contract import FORWARD as RECURRENT
from torchyard_kernels.topk.contract import TOPK
from torchyard_triton.compiled.specimens._attention import PROGRAMS, launches
from torchyard_triton.compiled.specimens._linear import linear_specimens
from torchyard_triton.compiled.specimens._pointwise import pointwise_specimens
from torchyard_triton.compiled.specimens._recurrent import recurrent_specimens
from torchyard_triton.compiled.specimens._specimen import Specimen
from torchyard_triton.compiled.specimens._topk import topk_specimens
from torchyard_triton.tuning import heads_of, table_tiles, tiles_of

__all__ = ["ATTENTION_PROGRAMS", "specimens"]

# Has no matrix product.
_WITHOUT_MATRIX: Final = frozenset({"attention_delta", "attention_merge"})
# Have tiles of fewer rows than the largest matrix instructions take.
_SMALL: Final = frozenset(
    {
        *("attention_exact_forward", "attention_exact_key_gradient"),
        *("attention_exact_query_gradient", "attention_decode", "attention_decode_pages"),
    }
)
# Whose kernels are compiled for heads of other sizes too, besides those with tiles of their own.
_HEADED: Final = frozenset({"sm_90", "sm_100", "gfx942"})
_HEAD_DIMS: Final = (64, 256)
_HEAD_PROGRAM: Final = "alibi"
# What stands for those among programs.
_HEADS: Final = "heads"
ATTENTION_PROGRAMS: Final = (*PROGRAMS, _HEADS)
_HEAD_KERNELS: Final = (
    *("attention_forward", "attention_query_gradient", "attention_key_gradient"),
    "attention_captured_gradient",
)
# Of these a call's outputs are made; of attention's other kernels, its gradients.
_FORWARD: Final = frozenset(
    {
        *("attention_forward", "attention_exact_forward", "attention_decode"),
        *("attention_decode_pages", "attention_varlen", "attention_merge"),
    }
)


def specimens(
    architecture: str, contract: str = "", *, programs: Iterable[str] = ATTENTION_PROGRAMS
) -> Iterator[Specimen]:
    """Yield every kernel that computes a contract on an architecture.

    Args:
        architecture: whose tiles they have.
        contract: ``op/version``; empty for all that there are.
        programs: what attention is compiled with: of PROGRAMS; ``heads`` is ALiBi with heads of
            other sizes than 128.
    """
    for name, found in _OF.items():
        if contract in ("", name):
            # Both halves of attention, and of recurrent layers, come from one function.
            for specimen in found(architecture, programs):
                if specimen.contract == name:
                    yield specimen


def _attention(architecture: str, programs: Iterable[str]) -> Iterator[Specimen]:
    tiles = tiles_of(architecture)
    small = _SMALL | {"attention_varlen"} if tiles["attention_decode"].rows < 64 else _SMALL
    for program in programs:
        if program == _HEADS:
            yield from _of_other_heads(architecture)
            continue
        for kernel, build in launches(program, tiles=tiles):
            yield Specimen(
                *(_half(kernel), kernel, program, build),
                matrix=kernel not in _WITHOUT_MATRIX,
                small=kernel in small,
            )


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
                yield Specimen(_half(kernel), kernel, program, build, small=length < 64)


def _half(kernel: str) -> str:
    return FORWARD if kernel in _FORWARD else BACKWARD


_Found = Callable[[str, Iterable[str]], Iterator[Specimen]]
_OF: Final[Mapping[str, _Found]] = {
    FORWARD: _attention,
    BACKWARD: _attention,
    TOPK: lambda architecture, _: topk_specimens(architecture),
    LINEAR: lambda architecture, _: linear_specimens(architecture),
    POINTWISE: lambda architecture, _: pointwise_specimens(architecture),
    RECURRENT: lambda architecture, _: recurrent_specimens(architecture),
    RECURRENT_BACKWARD: lambda architecture, _: recurrent_specimens(architecture),
}
