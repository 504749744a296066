"""``select``: the first k of each row, by one to three kernels, or more of long rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from torchyard_kernels.topk.contract import Order, TopKCall, TopKResult
from torchyard_triton._launch import Launch
from torchyard_triton.topk._launches import (
    Elements,
    Results,
    count_launch,
    network_launch,
    select_launch,
    sort_launch,
)
from torchyard_triton.topk._ways import Ways

__all__ = ["Selection", "select", "selection_of"]

# More is sorted by torch: a program holds all that it sorts.
_MOST_SORTED: Final = 1024
# A row is selected from in parts while there are fewer programs than this, if each part has this
# many elements or more and leaves a quarter of them at most. Counts take less for a part than
# histograms: what a program does not hold is cut into parts of a quarter of that, or more.
_PROGRAMS: Final = 256
_SHORTEST_PART: Final = 8192
_LEAST_GAIN: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """How a call is computed.

    Attributes:
        launches: in order.
        results: what they leave.
        sorts: whether torch sorts it by its ranks.
        shape: of the result.
        dtype: of x.
    """

    launches: tuple[Launch, ...]
    results: Results
    sorts: bool
    shape: tuple[int, ...]
    dtype: torch.dtype

    def run(self) -> TopKResult:
        """Start the kernels."""
        for launch in self.launches:
            launch.run()
        values, indices = self.results.values, self.results.indices
        if self.sorts:
            order = self.results.ranks.sort(dim=1, descending=True, stable=True).indices
            values, indices = values.gather(1, order), indices.gather(1, order)
        return TopKResult(values.view(self.dtype).view(self.shape), indices.view(self.shape))


def select(call: TopKCall, *, part: int | None = None, ways: Ways | None = None) -> TopKResult:
    """Compute ``topk/1``.

    Args:
        call: rows of fewer than 2**31 - 2**16 elements.
        part: how many elements of a row one program selects from; None: chosen from sizes.
        ways: up to which sizes other kernels than that of histograms are taken; None: none are.
    """
    return selection_of(call, part=part, ways=ways).run()


def selection_of(call: TopKCall, *, part: int | None = None, ways: Ways | None = None) -> Selection:
    """Return how a call is computed. Arguments as of :func:`select`."""
    ways = Ways() if ways is None else ways
    elements = Elements.of(call)
    lead = call.x.shape[:-1]
    rows = elements.bits.shape[0] if call.offsets is None else call.offsets.numel() - 1
    last = call.order is Order.LAST
    width = 1 if last else call.k
    shape = (*lead, width) if call.offsets is None else (rows, width)
    launches: list[Launch] = []
    while (taken := _part(elements, rows, part, ways)) < elements.length:
        parts = -(-elements.length // taken)
        found = Results.empty(rows, parts * call.k, elements.bits)
        launches.append(_launch(elements, found, (rows, parts), taken, ways, last=False))
        elements, part = elements.selected(found), None
    results = Results.empty(rows, width, elements.bits)
    if _by_network(elements, rows, ways):
        launches.append(network_launch(elements, results, rows, ways))
        return Selection(tuple(launches), results, False, shape, call.x.dtype)
    whole = max(1, elements.length)
    launches.append(_launch(elements, results, (rows, 1), whole, ways, last=last))
    sorts = call.order is Order.SORTED and width > 1
    if sorts and width <= _MOST_SORTED and results.ranks.dtype == torch.int32:
        finals = Results.empty(rows, width, elements.bits)
        launches.append(sort_launch(results, finals))
        results, sorts = finals, False
    return Selection(tuple(launches), results, sorts, shape, call.x.dtype)


def _part(elements: Elements, rows: int, asked: int | None, ways: Ways) -> int:
    """Return how many elements of a row one program selects from; its length: all of them."""
    length, most = elements.length, _LEAST_GAIN * elements.call.k
    if elements.call.offsets is not None:
        return length
    if asked is not None:
        return min(asked, length)
    if length <= _counted(elements, ways.counted) or _by_network(elements, rows, ways):
        return length
    taken = length
    if elements.mapped is None:
        least = max(ways.counted // _LEAST_GAIN or _SHORTEST_PART, most)
        parts = min(length // least, -(-_PROGRAMS // max(1, rows)))
        taken = -(-length // parts) if parts > 1 else length
    held = (_counted(elements, size) for size in (ways.part, ways.counted))
    return min(taken, next((size for size in held if most <= size), taken))


def _counted(elements: Elements, size: int) -> int:
    """Return how many elements a program counts, which holds as many bytes of any dtype."""
    return size // 2 if elements.bits.element_size() == 8 else size


def _by_network(elements: Elements, rows: int, ways: Ways) -> bool:
    """Whether rows are ordered whole; elements of 8 bytes leave no place for an index."""
    call = elements.call
    longest = ways.network_few if rows <= _PROGRAMS else ways.network
    return (
        call.offsets is None
        and elements.bits.element_size() < 8
        and elements.length <= longest
        and call.k <= ways.network_k
    )


def _launch(
    elements: Elements,
    results: Results,
    grid: tuple[int, int],
    part: int,
    ways: Ways,
    *,
    last: bool,
) -> Launch:
    """Return the selection of parts: by counts where a program holds one, else by histograms."""
    if elements.call.offsets is None and part <= _counted(elements, ways.counted):
        return count_launch(elements, results, grid, part, ways, last=last)
    return select_launch(elements, results, grid, part, last=last)
