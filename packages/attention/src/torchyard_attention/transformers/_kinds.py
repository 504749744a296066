"""What kind of mask a model asks for, apart from the tensors of the process that asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from types import CodeType
from typing import Any, Final

from torchyard_attention.transformers import _patterns
from torchyard_attention.transformers._structures import Band

__all__ = ["MaskKind", "mask_kind"]


@dataclass(frozen=True, slots=True)
class MaskKind:
    """A mask function of positions in a sequence.

    Attributes:
        low, high: a query at q sees keys from q + low to below q + high; None: no limit.
        chunk: a query sees keys of its own chunk of this many positions; None: of all.
        packed: whether position ids told transformers that several sequences lie in one row.
        unknown: names of parts that are none of these, and may hold tensors of this process.
    """

    low: int | None = None
    high: int | None = None
    chunk: int | None = None
    packed: bool = False
    unknown: tuple[str, ...] = ()

    def __and__(self, other: MaskKind) -> MaskKind:
        band = Band(self.low, self.high) & Band(other.low, other.high)
        chunks = {size for size in (self.chunk, other.chunk) if size is not None}
        two = ("chunks of two sizes",) if len(chunks) > 1 else ()
        return MaskKind(
            band.low,
            band.high,
            min(chunks, default=None),
            self.packed or other.packed,
            self.unknown + other.unknown + two,
        )


_BANDS: Final = (
    _patterns._causal,
    _patterns._everything,
    _patterns._window,
    _patterns._window_both_ways,
)


def mask_kind(function: Callable[..., Any] | None) -> MaskKind:
    """Return the kind of a mask function of transformers; None: causal."""
    if function is None:
        return MaskKind(high=1)
    code = getattr(function, "__code__", None)
    if _patterns._is(function, "positions"):
        # Positions within a sequence differ as indices do.
        return mask_kind(_patterns._captured(function)["mask_function"])
    reader = _patterns._readers().get(code) if isinstance(code, CodeType) else None
    captured = {} if reader is None else _patterns._captured(function)
    if reader in _BANDS and reader is not None:
        band = reader(captured).band
        return MaskKind(band.low, band.high)
    if reader is _patterns._chunks:
        return MaskKind(chunk=captured["chunk_size"])
    if reader is _patterns._packed:
        return MaskKind(packed=True)
    if reader is _patterns._intersection:
        parts = [mask_kind(part) for part in captured["mask_functions"]]
        return reduce(lambda left, right: left & right, parts, MaskKind())
    return MaskKind(unknown=(getattr(function, "__qualname__", repr(function)),))
