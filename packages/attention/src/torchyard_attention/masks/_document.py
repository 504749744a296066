"""Several documents in one sequence: a query sees its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._mask_blocks._intervals import (
    BlockRows,
    Intervals,
    StructuredMask,
    Visibility,
    repeated,
)
from torchyard_attention._torch_compat import version_of
from torchyard_attention._validation import integers
from torchyard_attention.masks._combination import or_masks
from torchyard_attention.masks._prefix import keys_before

# Each position has a number here: more are a mistake, and would take minutes and all memory.
_MOST_IDS: Final = 1 << 30


class _Keys:
    """The places of the documents of some keys, computed once for ids that do not change.

    Args:
        ids: integers [S].
    """

    def __init__(self, ids: Tensor) -> None:
        self._ids = ids
        self._found: tuple[int, int, _Places] | None = None

    @property
    def length(self) -> int:
        """How many keys there are."""
        return self._ids.shape[0]

    def places(self, length: int) -> _Places:
        """Return the places of the documents of the first ``length`` keys."""
        version = version_of(self._ids)
        if self._found is None or self._found[:2] != (version, length) or version < 0:
            self._found = (version, length, _places(self._ids[:length]))
        return self._found[2]


class _Places(NamedTuple):
    """Runs of equal ids, and documents in ascending order of their ids, as int64 tensors.

    Attributes:
        run_start, run_end: of each run.
        ids: of each document.
        first, last: where each document begins, and where it ends.
    """

    run_start: Tensor
    run_end: Tensor
    ids: Tensor
    first: Tensor
    last: Tensor


def _places(ids: Tensor) -> _Places:
    run_start, run_end, run_ids = _runs(ids)
    known, which = torch.unique(run_ids, return_inverse=True)
    first = torch.full_like(known, ids.shape[0], dtype=torch.int64)
    last = torch.zeros_like(first)
    return _Places(
        run_start,
        run_end,
        known,
        first.scatter_reduce(0, which, run_start, "amin"),
        last.scatter_reduce(0, which, run_end, "amax"),
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Document:
    ids: Tensor
    kv_ids: Tensor
    keys: _Keys

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return self.ids[q_idx] == self.kv_ids[kv_idx]

    def visibility(self, rows: BlockRows) -> Visibility:
        return _visibility([self.ids], [self.keys], rows, shared=self.kv_ids is self.ids)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _DocumentOfBatch:
    ids: Tensor
    kv_ids: Tensor
    keys: tuple[_Keys, ...]

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return self.ids[b, q_idx] == self.kv_ids[b, kv_idx]

    def visibility(self, rows: BlockRows) -> Visibility:
        return _visibility(self.ids, self.keys, rows, shared=self.kv_ids is self.ids)


def document(ids: Tensor, kv_ids: Tensor | None = None) -> StructuredMask:
    """Show a query the keys of its own document.

    Args:
        ids: integers [Sq], or [B, Sq]: the document of each query. Documents may have any numbers,
            lengths and order; those that lie in one piece are found fastest.
        kv_ids: likewise for the keys; None: as ``ids``.
    """
    return _document("document", ids, kv_ids)


def _document(of: str, ids: Tensor, kv_ids: Tensor | None) -> StructuredMask:
    keys = ids if kv_ids is None else kv_ids
    for name, tensor in (("ids", ids), ("kv_ids", keys)):
        integers(of, name, tensor, "[S] or [B, S]", (1, 2))
        if tensor.ndim != ids.ndim:
            raise ValueError(
                f"{of}: {name}: expected as many dimensions as ids, {ids.ndim}, got {tensor.ndim}"
            )
    if keys.shape[:-1] != ids.shape[:-1]:
        raise ValueError(
            f"{of}: kv_ids: expected batch {ids.shape[0]}, as ids, got {keys.shape[0]}"
        )
    if ids.ndim == 1:
        return _Document(ids, keys, _Keys(keys))
    return _DocumentOfBatch(ids, keys, tuple(_Keys(row) for row in keys))


def varlen(
    offsets: Tensor,
    kv_offsets: Tensor | None = None,
    *,
    length: int | None = None,
    kv_length: int | None = None,
) -> StructuredMask:
    """Show a query the keys of its own sequence, for sequences packed one after the other.

    Args:
        offsets: integers [N + 1], from 0: where each sequence's queries begin, then their end.
        kv_offsets: likewise for the keys; None: as ``offsets``.
        length, kv_length: Sq and Sk where they are longer than the sequences. What follows the
            sequences sees nothing and is seen by nobody.
    """
    keys = offsets if kv_offsets is None else kv_offsets
    for name, tensor in (("offsets", offsets), ("kv_offsets", keys)):
        integers("varlen", name, tensor, "[N + 1]")
        if tensor.is_meta:
            raise arguments.wrong_kind(
                "varlen", name, "values", tensor, "a tensor on the meta device has none"
            )
    if length is not None:
        length = arguments.integer("varlen", "length", length, least=0, most=_MOST_IDS)
    if kv_length is not None:
        kv_length = arguments.integer("varlen", "kv_length", kv_length, least=0, most=_MOST_IDS)
    if keys.shape != offsets.shape:
        raise ValueError(
            f"varlen: kv_offsets: expected shape {list(offsets.shape)}, as offsets, got "
            f"{list(keys.shape)}"
        )
    ids = _ids("offsets", offsets, length, 0)
    if kv_offsets is None and kv_length == length and ids.shape[0] == int(offsets[-1]):
        return document(ids)
    wanted = length if kv_length is None else kv_length
    return document(ids, _ids("kv_offsets", keys, wanted, 1))


def shared_prefix(
    length: int | Tensor, ids: Tensor, kv_ids: Tensor | None = None
) -> StructuredMask:
    """Show a query the first ``length`` keys and the keys of its own document.

    For continuations of one prompt, packed after it; intersect it with ``causal`` for decoders.

    Args:
        length: of the prompt, as in :func:`padding`.
        ids, kv_ids: as in :func:`document`, the prompt being a document of its own.
    """
    of = "shared_prefix"
    return or_masks(keys_before(of, "length", length), _document(of, ids, kv_ids))


def _ids(name: str, offsets: Tensor, length: int | None, beyond: int) -> Tensor:
    """Return each position's sequence; N + ``beyond`` for positions after the last one."""
    if offsets.shape[0] < 1:
        raise ValueError(f"varlen: {name}: expected integers [N + 1], got shape [0]")
    # Those of few bits would wrap around.
    lengths = offsets.long().diff()
    if int(offsets[0]) != 0 or bool((lengths < 0).any()):
        raise ValueError(f"varlen: {name}: expected offsets that start at 0 and never fall")
    count, total = lengths.shape[0], int(offsets[-1])
    if length is not None and length < total:
        raise ValueError(f"varlen: {name}: expected at most {length} positions, got {total}")
    ids = torch.arange(count, device=offsets.device).repeat_interleave(lengths)
    return torch.nn.functional.pad(ids, (0, (length or total) - total), value=count + beyond)


def _visibility(
    ids: Iterable[Tensor], keys: Iterable[_Keys], rows: BlockRows, *, shared: bool
) -> Visibility:
    """Return the visibility from the ids of each batch's queries and its keys."""
    found = [_bounds(*batch, rows, shared=shared) for batch in zip(ids, keys, strict=True)]
    low, high, inner_low, inner_high = (
        torch.stack(bounds)[:, None, :, None] for bounds in zip(*found, strict=True)
    )
    return Visibility(Intervals(low, high), Intervals(inner_low, inner_high))


def _bounds(
    ids: Tensor, keys: _Keys, rows: BlockRows, *, shared: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return for each row of blocks the keys of all its documents, and keys that all its rows see.

    Both as [low, high), int64 [Qb]. Works on runs of equal ids and on the pieces that the rows of
    blocks, which leave no gaps, cut them into.
    """
    for name, got, wanted in (
        ("queries", ids.shape[0], rows.q_length),
        ("keys", keys.length, rows.kv_length),
    ):
        if got < wanted:
            raise ValueError(f"document: ids: expected those of {wanted} {name}, got {got}")
    if rows.first.shape[0] == 0 or rows.kv_length == 0:
        low = torch.full_like(rows.first, rows.kv_length)
        return low, torch.zeros_like(low), low, torch.zeros_like(low)
    places = keys.places(rows.kv_length)
    origin, end = int(rows.first[0]), int(rows.last[-1]) + 1
    run_start, run_end, run_ids = _runs(ids[origin:end])
    run_ids = run_ids.to(places.ids.dtype)
    index = torch.searchsorted(places.ids, run_ids).clamp(max=places.ids.shape[0] - 1)
    absent = places.ids[index] != run_ids
    low, high = places.first[index], places.last[index]
    # Some run of the document surely belongs to it whole: the query's own where it is a key too.
    own = run_start + origin if shared else low
    own = torch.where(own < rows.kv_length, own, low)
    run = torch.searchsorted(places.run_start, own, right=True) - 1
    bounds = (
        low.masked_fill(absent, rows.kv_length),
        high.masked_fill(absent, 0),
        places.run_start[run].masked_fill(absent, rows.kv_length),
        places.run_end[run].masked_fill(absent, 0),
    )
    if rows.height == 1:
        run, _ = repeated(run_end - run_start)
        low, high, inner_low, inner_high = (bound.index_select(0, run) for bound in bounds)
        return low, high, inner_low, inner_high
    # A piece begins where a run of queries or a row of blocks does.
    piece = torch.cat([run_start + origin, rows.first]).unique()  # type: ignore[no-untyped-call]
    row = torch.searchsorted(rows.first, piece, right=True) - 1
    run = torch.searchsorted(run_start, piece - origin, right=True) - 1
    far, near = torch.full_like(rows.first, rows.kv_length), torch.zeros_like(rows.first)
    return (
        far.scatter_reduce(0, row, bounds[0][run], "amin"),
        near.scatter_reduce(0, row, bounds[1][run], "amax"),
        near.scatter_reduce(0, row, bounds[2][run], "amax"),
        far.scatter_reduce(0, row, bounds[3][run], "amin"),
    )


def _runs(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return start, end and id of each run of equal ids."""
    changes = (ids[1:] != ids[:-1]).nonzero().squeeze(1) + 1
    start = torch.cat([changes.new_zeros(1), changes])
    end = torch.cat([changes, changes.new_full((1,), ids.shape[0])])
    return start, end, ids[start]
