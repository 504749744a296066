"""``Row``: one contestant of one race."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Row", "rows_of"]


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant on one case.

    Attributes:
        case, contract, contestant: what ran.
        milliseconds: the median; 0 where it was not timed.
        behind: its time over the fastest's.
        share: of what the device can do, as measured in this run.
        chosen: whether it is what a user's call runs.
        wrong: how its result differs from float64, or the error in place of one; empty where
            neither is.
        absent: why it did not run, where it is not installed; empty where it is.
    """

    case: str
    contract: str
    contestant: str
    milliseconds: float
    behind: float
    share: float
    chosen: bool
    wrong: str = ""
    absent: str = ""

    def __str__(self) -> str:
        mark = "*" if self.chosen else " "
        if self.absent:
            return f"{self.case:28} {self.contract:22} {mark}{self.contestant:18} {self.absent}"
        told = f"  WRONG: {self.wrong}" if self.wrong else ""
        return (
            f"{self.case:28} {self.contract:22} {mark}{self.contestant:18} "
            f"{self.milliseconds:9.4f} ms {self.behind:7.2f} x {self.share:6.1%}{told}"
        )


def rows_of(
    case: str,
    contract: str,
    times: Mapping[str, float],
    wrong: Mapping[str, str],
    *,
    chosen: str,
    floor: float,
) -> Iterator[Row]:
    """Yield a row of each contestant.

    Args:
        case, contract: of all of them.
        times: milliseconds of those that are right, by name.
        wrong: of each contestant, by name.
        chosen: the name of what a user's call runs.
        floor: the least milliseconds that the device needs.
    """
    best = min(times.values(), default=0.0)
    for name, told in wrong.items():
        spent = times.get(name, 0.0)
        behind, share = (spent / best, floor / spent) if spent else (0.0, 0.0)
        yield Row(case, contract, name, spent, behind, share, name == chosen, told)
