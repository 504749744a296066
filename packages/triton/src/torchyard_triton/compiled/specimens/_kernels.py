"""``specimens``: all kernels of an architecture, by the contract that they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

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
from torchyard_triton.tuning import tiles_of

__all__ = ["specimens"]

# Has no matrix product.
_WITHOUT_MATRIX: Final = frozenset({"attention_delta", "attention_merge"})
# Have tiles of fewer rows than the largest matrix instructions take.
_SMALL: Final = frozenset(
    {
        *("attention_exact_forward", "attention_exact_key_gradient"),
        *("attention_exact_query_gradient", "attention_decode", "attention_decode_pages"),
    }
)
# Of these a call's outputs are made; of attention's other kernels, its gradients.
_FORWARD: Final = frozenset(
    {
        *("attention_forward", "attention_exact_forward", "attention_decode"),
        *("attention_decode_pages", "attention_varlen", "attention_merge"),
    }
)


def specimens(
    architecture: str, contract: str = "", *, programs: Iterable[str] = tuple(PROGRAMS)
) -> Iterator[Specimen]:
    """Yield every kernel that computes a contract on an architecture.

    Args:
        architecture: whose tiles they have.
        contract: ``op/version``; empty for all that there are.
        programs: keys of :data:`PROGRAMS`: what attention is compiled with.
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
        for kernel, build in launches(program, tiles=tiles):
            contract = FORWARD if kernel in _FORWARD else BACKWARD
            yield Specimen(
                *(contract, kernel, program, build),
                matrix=kernel not in _WITHOUT_MATRIX,
                small=kernel in small,
            )


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
