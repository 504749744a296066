"""The fast path of functions that compute with plain numbers alone, as in ``1 - beta``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torchyard_kernels.pointwise.contract import NUMBERS, PointwiseRequest

__all__ = ["WithNumbers"]

_LISTS: Final = (list, tuple)


class WithNumbers:
    """Compute what a function makes of plain numbers, and the rest natively.

    Args:
        request: of the calls.
        computed: gives the numbers for one group's inputs, among which it looks at no tensor.
        compute: takes them behind the captured tensors; a list of one per group where they differ.
    """

    def __init__(
        self,
        request: PointwiseRequest,
        computed: Callable[..., tuple[Any, ...]],
        compute: Callable[..., Any],
    ) -> None:
        self._count = len(request.inputs)
        self._numbers = [
            (place, NUMBERS[name]) for place, (name, ndim) in enumerate(request.inputs) if ndim < 0
        ]
        self._computed = computed
        self._compute = compute

    def __call__(self, lists: tuple[Any, ...], captured: tuple[Any, ...], out: Any) -> Any:
        """Compute a call; None where the path does not: see the contract."""
        if len(lists) != self._count:
            return None
        groups = None
        for place, kind in self._numbers:
            given = lists[place]
            if type(given) in _LISTS:
                if any(type(value) is not kind for value in given):
                    return None
                if groups is not None and groups != len(given):
                    return None
                groups = len(given)
            elif type(given) is not kind:
                return None
        if groups is None:
            return self._compute(lists, captured + self._computed(*lists), out)
        found = [self._computed(*self._of_group(lists, group)) for group in range(groups)]
        values = tuple([list(value) for value in zip(*found, strict=True)])
        return self._compute(lists, captured + values, out) if values else None

    def _of_group(self, lists: tuple[Any, ...], group: int) -> Sequence[Any]:
        items = list(lists)
        for place, _ in self._numbers:
            if type(items[place]) in _LISTS:
                items[place] = items[place][group]
        return items
