"""Into which pieces the native kernels cut their work: defaults, a call's own, and a machine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["BOUNDS", "FROZEN", "FrozenTunables", "Tunables", "checked", "frozen", "with_options"]

_PREFIX: Final = "cpu."
_PANEL_KEYS: Final = 64


class Tunables(NamedTuple):
    """Sizes of pieces, in the order in which _native takes them.

    All values give results that are right. ``keys_per_split`` and ``backward_rows`` decide the
    order of sums, and with it the last bits.

    Attributes:
        rows_per_item: forward: rows of queries that a thread takes at a time.
        keys_per_split: decoding: keys of one partial result, a multiple of 64.
        backward_rows: backward: rows of queries whose weights are held at a time.
        backward_bytes: backward: a thread's working memory, in bytes.
    """

    rows_per_item: int
    keys_per_split: int
    backward_rows: int
    backward_bytes: int


# Least and greatest value of each, and what it must be a multiple of.
BOUNDS: Final[Mapping[str, tuple[int, int, int]]] = MappingProxyType(
    {
        "rows_per_item": (1, 1 << 16, 1),
        "keys_per_split": (_PANEL_KEYS, 1 << 16, _PANEL_KEYS),
        "backward_rows": (1, 1 << 12, 1),
        "backward_bytes": (1 << 14, 1 << 24, 1),
    }
)


@dataclass(frozen=True, slots=True)
class FrozenTunables:
    """One line of the table of defaults.

    Attributes:
        isa: the kernels' instruction set; ``*`` for any.
        values: what they use.
        date: when it was measured, ISO 8601.
        reason: on what, and why these.
    """

    isa: str
    values: Tunables
    date: str
    reason: str


# The first line that fits a kernel counts.
FROZEN: Final = (
    FrozenTunables(
        "*",
        Tunables(
            rows_per_item=128, keys_per_split=512, backward_rows=132, backward_bytes=720 << 10
        ),
        "2026-11-21",
        "x86-64 with 1 MiB of second-level cache per core: a strip of keys is used for some twenty "
        "tiles of rows, a split's state is small beside its keys, and a key block's operands, "
        "sums and weights stay in that cache; forward times are within 3 % from 64 to 256 rows",
    ),
)


def frozen(isa: str) -> Tunables:
    """Return the defaults of an instruction set's kernels."""
    return next(line.values for line in FROZEN if line.isa in (isa, "*"))


def checked(values: Mapping[str, int], where: str) -> dict[str, int]:
    """Return values that are known and within their bounds.

    Raises:
        ValueError: names ``where`` they come from, the value, what was expected and what came.
    """
    for name, value in values.items():
        if name not in BOUNDS:
            raise ValueError(f"{where}: {name!r}: unknown; known: {', '.join(BOUNDS)}")
        least, most, step = BOUNDS[name]
        # A bool is an int, and True is no size.
        fits = type(value) is int and least <= value <= most and value % step == 0
        if not fits:
            multiple = f", a multiple of {step}" if step > 1 else ""
            raise ValueError(
                f"{where}: {name}: expected an integer from {least} to {most}{multiple}, got "
                f"{value!r}"
            )
    return dict(values)


@lru_cache(maxsize=256)
def with_options(base: Tunables, options: tuple[tuple[str, int], ...]) -> Tunables:
    """Return ``base`` with the options that are for this plugin, such as ``cpu.rows_per_item``."""
    own = _own(options)
    return base._replace(**checked(own, "kernel_options")) if own else base


def _own(options: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {
        name.removeprefix(_PREFIX): value for name, value in options if name.startswith(_PREFIX)
    }
