"""The order in which packages are built and published: requirements first."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping, Sequence

from torchyard_release._errors import CycleError


def in_order(requires: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the names so that each follows all that it requires; the same order every time.

    Args:
        requires: each name, and the names that it requires; every name is a key.

    Raises:
        CycleError: some require one another; the message shows the circle.
    """
    sorter = graphlib.TopologicalSorter(
        {name: sorted(needed) for name, needed in sorted(requires.items())}
    )
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        # Each is required by the one after it.
        circle = " requires ".join(reversed(error.args[1]))
        raise CycleError(
            f"packages require one another in a circle: {circle}",
            "take one of these out of `requires` in train.toml, and of the package's dependencies",
        ) from None
    found: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found += ready
        sorter.done(*ready)
    return tuple(found)


def closure(names: Sequence[str], edges: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the names and all that some path along the edges leads to."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges.get(name, ())
    return frozenset(found)
