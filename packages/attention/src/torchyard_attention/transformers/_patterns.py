"""From transformers' mask functions to masks that know their structure.

transformers says a mask as a function of positions that is put together of a few others: causal,
a window, padding, packed sequences, unions and intersections of these. They are recognised by their
code, and believed only after a trial on a small grid. Anything else stays a function: it is
recorded and evaluated, as every mask_mod is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib import import_module
from types import CodeType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention import masks
from torchyard_attention._block_mask import MaskMod
from torchyard_attention.masks._combination import and_masks, or_masks
from torchyard_attention.transformers._structures import Band, Chunks, Place

__all__ = ["Pattern", "read"]

MaskFunction = Callable[[Any, Any, Any, Any], Any]
Captured = Mapping[str, Any]

_EVERYTHING: Final = Band()

# The trial's grid: more positions than any of its parameters.
_GRID: Final = 9


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a mask function shows: a band of positions, cut down by further masks.

    Attributes:
        band: limits of key position - query position.
        rest: what else must hold; each makes a mask of a place.
        packed: whether it keeps sequences in one row apart.
    """

    band: Band = _EVERYTHING
    rest: tuple[Callable[[Place], MaskMod], ...] = ()
    packed: bool = False

    def __and__(self, other: Pattern) -> Pattern:
        return Pattern(self.band & other.band, self.rest + other.rest, self.packed or other.packed)

    def at(self, place: Place) -> MaskMod:
        """Return the mask over the queries and keys of a place."""
        band = self.band.moved(place.shift)
        return and_masks(band, *(part(place) for part in self.rest))


def read(function: MaskFunction) -> Pattern:
    """Return the pattern of a mask function of positions."""
    code = getattr(function, "__code__", None)
    reader = _readers().get(code) if isinstance(code, CodeType) else None
    return _plain(function) if reader is None else reader(_captured(function))


def _plain(function: MaskFunction) -> Pattern:
    """Return the pattern of a function whose structure is unknown."""

    def at(place: Place) -> MaskMod:
        def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Any:
            return function(b, h, q_idx + place.q_offset, kv_idx + place.kv_offset)

        return mask_mod

    return Pattern(rest=(at,))


def _captured(function: MaskFunction) -> Captured:
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}


def _causal(captured: Captured) -> Pattern:
    return Pattern(Band(high=1))


def _everything(captured: Captured) -> Pattern:
    return Pattern()


def _window(captured: Captured) -> Pattern:
    return Pattern(Band(low=1 - captured["sliding_window"]))


def _window_both_ways(captured: Captured) -> Pattern:
    reach = captured["sliding_window"]
    return Pattern(Band(-reach, reach + 1))


def _chunks(captured: Captured) -> Pattern:
    size, padding = captured["chunk_size"], captured["left_padding"]
    return Pattern(rest=(lambda place: Chunks(size, padding, place),))


def _groups(captured: Captured) -> Pattern:
    ids = captured["block_sequence_ids"]
    # A query of no group sees no key of another query that is of none.
    return Pattern(rest=(_documents(ids, torch.where(ids < 0, -2, ids)),))


def _packed(captured: Captured) -> Pattern:
    ids = captured["packed_sequence_mask"]
    return Pattern(rest=(_documents(ids, ids),), packed=True)


def _documents(ids: Tensor, kv_ids: Tensor) -> Callable[[Place], MaskMod]:
    def at(place: Place) -> MaskMod:
        queries = ids[:, place.q_offset : place.q_offset + place.q_length]
        if kv_ids is ids and place.shift == 0 and place.q_length == place.kv_length:
            return masks.document(queries)
        keys = kv_ids[:, place.kv_offset : place.kv_offset + place.kv_length]
        return masks.document(queries, keys)

    return at


def _intersection(captured: Captured) -> Pattern:
    functions = captured["mask_functions"]
    packed = any(_is(function, "packed") for function in functions)
    parts = [
        # Inside of one sequence positions differ as indices do, so a band is the same in both.
        _positions(function) if packed and _is(function, "positions") else read(function)
        for function in functions
    ]
    return reduce(lambda left, right: left & right, parts, Pattern())


def _positions(function: MaskFunction) -> Pattern:
    inner = read(_captured(function)["mask_function"])
    return _plain(function) if inner.rest else inner


def _union(captured: Captured) -> Pattern:
    patterns = [read(function) for function in captured["mask_functions"]]
    return Pattern(
        rest=(lambda place: or_masks(*(pattern.at(place) for pattern in patterns)),),
        packed=bool(patterns) and all(pattern.packed for pattern in patterns),
    )


def _is(function: MaskFunction, kind: str) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code is _special().get(kind)


@lru_cache(maxsize=1)
def _special() -> Mapping[str, CodeType]:
    """Return the code of what is read together with its neighbours."""
    masking = import_module("transformers.masking_utils")
    ids = torch.zeros((1, 1), dtype=torch.int64)
    found = {}
    for kind, name, arguments in (
        ("packed", "packed_sequence_mask_function", (ids,)),
        ("positions", "remap_positions_for_packed_sequence", (_nothing, ids)),
    ):
        factory = getattr(masking, name, None)
        if factory is not None:
            found[kind] = factory(*arguments).__code__
    return found


@lru_cache(maxsize=1)
def _readers() -> Mapping[CodeType, Callable[[Captured], Pattern]]:
    """Return a reader for the code of each function that passed its trial."""
    return {
        function.__code__: reader for function, reader in _samples() if _agrees(function, reader)
    }


def _samples() -> Iterator[tuple[MaskFunction, Callable[[Captured], Pattern]]]:
    """Yield a sample of each kind of mask function that this transformers has, and its reader."""
    masking = import_module("transformers.masking_utils")
    ids = torch.tensor([[0, 0, 1, 1, 1, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0, 1, 1]])
    groups = torch.tensor([[-1, 0, 0, -1, -1, 1, 1, 1, -1], [2, 2, 2, -1, -1, -1, 0, 0, 0]])
    for name, arguments, reader in (
        ("causal_mask_function", None, _causal),
        ("bidirectional_mask_function", None, _everything),
        ("sliding_window_overlay", (3,), _window),
        ("sliding_window_bidirectional_overlay", (3,), _window_both_ways),
        ("chunked_overlay", (3, torch.tensor([0, 2])), _chunks),
        ("blockwise_overlay", (groups,), _groups),
        ("packed_sequence_mask_function", (ids,), _packed),
    ):
        function = getattr(masking, name, None)
        if function is not None:
            yield (function if arguments is None else function(*arguments)), reader
    sample = masking.causal_mask_function, masking.bidirectional_mask_function
    yield masking.and_masks(*sample), _intersection
    yield masking.or_masks(*sample), _union


def _agrees(function: MaskFunction, reader: Callable[[Captured], Pattern]) -> bool:
    """Return whether a reader's pattern shows what the function shows, on a small grid."""
    if reader in (_intersection, _union):
        # They hold other functions, which are read on their own.
        return set(_captured(function)) == {"mask_functions"}
    b, h = torch.arange(2)[:, None, None, None], torch.zeros((1, 1, 1, 1), dtype=torch.int64)
    position = torch.arange(_GRID)
    q, k = position[:, None], position[None, :]
    try:
        pattern = reader(_captured(function))
    except KeyError:
        return False
    found = pattern.at(Place(0, 0, _GRID, _GRID))(b, h, q, k)
    return torch.equal(
        torch.as_tensor(found).expand(2, 1, _GRID, _GRID),
        torch.as_tensor(function(b, h, q, k)).expand(2, 1, _GRID, _GRID),
    )


def _nothing(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return q_idx < 0
