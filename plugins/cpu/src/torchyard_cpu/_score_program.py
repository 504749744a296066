"""A call's score_mod as the native kernels take it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from torch import Tensor

from torchyard_attention.contract import ScoreMod
from torchyard_cpu._score_binding import CapturedShape, bind
from torchyard_cpu._score_encoding import EncodedScore, NativeScore, encode
from torchyard_cpu._score_intervals import fits_int32
from torchyard_cpu._score_lowering import lower

__all__ = ["native_score"]

# int64 tensors of so many elements are looked through for what int32 does not hold, at a few
# microseconds: documents' numbers and the like are then compared at twice the speed.
_LOOKED_THROUGH: Final = 1 << 16


def native_score(score_mod: ScoreMod, sizes: tuple[int, int, int, int]) -> NativeScore:
    """Return the program for a call.

    The graph is kept by the program's text, the steps by text, sizes and strides; a call with
    other captured tensors of the same form only writes their addresses.

    Args:
        score_mod: the traced function.
        sizes: B, Hq, Sq, Sk.

    Raises:
        IndexError: a captured tensor that is indexed has no element.
    """
    captured = tuple(_shape(tensor) for tensor in score_mod.captured)
    encoded = _encoded(score_mod.text, captured, sizes)
    return encoded.at([tensor.data_ptr() for tensor in score_mod.captured])


@lru_cache(maxsize=1024)
def _encoded(
    text: str, captured: tuple[CapturedShape, ...], sizes: tuple[int, int, int, int]
) -> EncodedScore:
    graph = lower(text, tuple((_dtype(shape), len(shape.sizes)) for shape in captured))
    return encode(bind(graph, captured, sizes))


def _dtype(shape: CapturedShape) -> str:
    return "int64" if shape.dtype == "narrow" else shape.dtype


def _shape(tensor: Tensor) -> CapturedShape:
    dtype = str(tensor.dtype)[6:]
    if dtype == "int64" and 0 < tensor.numel() <= _LOOKED_THROUGH:
        low, high = tensor.aminmax()
        if fits_int32((int(low), int(high))):
            dtype = "narrow"
    return CapturedShape(dtype, tuple(tensor.shape), tensor.stride())
