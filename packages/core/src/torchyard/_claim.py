"""Claims: what an implementation promises beyond its contract."""

from __future__ import annotations

from enum import StrEnum


class Claim(StrEnum):
    """What an implementation may promise of its results, for every request that it accepts.

    A claim changes no decision. It is what the conformance kit holds the implementation to, and
    what the device matrix says of it. "Same bits" is of outputs that the contract defines.

    A claim is never renamed, and its meaning is never weakened.
    """

    DETERMINISTIC = "deterministic"
    """Equal inputs give the same bits in every run, from any number of threads."""

    BATCH_INVARIANT = "batch-invariant"
    """One batch entry's results have the same bits alone, in any batch, at any place in it.

    Of sums over the batch, such as a captured tensor's gradient, it says nothing.
    """
