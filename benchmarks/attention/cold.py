"""What a new score_mod, mask_mod, length or captured tensor costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring.findings import Finding, at_most, in_fresh_process
from benchmarks.reporting.plot import draw_calls

__all__ = ["measure_cold"]

_MILLI: Final = 1e3
_TARGET: Final = 50.0
_MEBI: Final = 1 << 20


def measure_cold(
    *, quick: bool, plots: Path | None, progress: Callable[[str], None]
) -> list[Finding]:
    """Measure overheads in fresh processes.

    Args:
        quick: fewer functions.
        plots: where to draw the calls in a row; None: nowhere.
        progress: receives the name of each step.
    """
    findings = [*_first(progress), *_functions(progress)]
    count, others = (40, 2) if quick else (200, 12)
    progress(f"{count} new functions in a row")
    many = in_fresh_process("attention.cold_probe", "many", str(count))
    findings += _in_a_row(many, count)
    progress(f"{others} new functions in a row, torch's compiled flex")
    stock = in_fresh_process("attention.cold_probe", "stock", str(others))
    findings += _stock(stock, others)
    if plots is not None and "failed" not in many and "failed" not in stock:
        draw_calls(many, stock, plots)
    return findings


def _first(progress: Callable[[str], None]) -> list[Finding]:
    """Time the first call of a process, which also finds the plugins; so does one without any."""
    findings = []
    for number in (-1, 0, 7):
        progress("the first call of a process")
        found = in_fresh_process("attention.cold_probe", "first", str(number))
        if "failed" in found:
            return [Finding("first call of a process", "torchyard", found["failed"], None)]
        overhead = (found["first"] - found["later"]) * _MILLI
        case = f"first call of a process, {found['name']}"
        findings.append(Finding(case, "torchyard", "over a later call, ms", overhead))
    return findings


def _functions(progress: Callable[[str], None]) -> list[Finding]:
    progress("first calls with new functions")
    found = in_fresh_process("attention.cold_probe", "functions")
    if "failed" in found:
        return [Finding("first calls", "torchyard", found["failed"], None)]
    return [
        _overhead(f"first call with {name}", found["computed_by"], times)
        for name, times in found["calls"].items()
    ]


def _overhead(case: str, who: str, times: dict[str, Any]) -> Finding:
    overhead = (times["first"] - times["later"]) * _MILLI
    return at_most(case, who, "over a later call, ms", overhead, _TARGET)


def _in_a_row(many: dict[str, Any], count: int) -> list[Finding]:
    case = f"{count} functions, lengths and captured tensors in a row"
    if "failed" in many:
        return [Finding(case, "torchyard", many["failed"], None)]
    who, part = many["computed_by"], count // 4
    overheads = [
        (first - later) * _MILLI for first, later in zip(many["first"], many["later"], strict=True)
    ]
    early, late = overheads[part : 2 * part], overheads[-part:]
    slower = [later / plain for later, plain in zip(many["later"], many["plain"], strict=True)]
    grown = (many["resident"][-1] - many["resident"][2 * part]) / _MEBI
    return [
        at_most(case, who, "largest over a later call, ms", max(overheads[1:]), _TARGET),
        Finding(case, who, "median of the second quarter, ms", statistics.median(early)),
        at_most(
            case,
            who,
            "median of the last quarter, ms",
            statistics.median(late),
            2 * max(1.0, statistics.median(early)),
        ),
        at_most(case, who, "slowest later call over plain attention", max(slower), 10.0),
        at_most(case, who, "growth over the second half, MiB", grown, 16.0),
    ]


def _stock(stock: dict[str, Any], count: int) -> list[Finding]:
    case, who = f"{count} functions and lengths in a row", "torch flex, compiled"
    if "failed" in stock:
        return [Finding(case, who, stock["failed"], None)]
    return [
        Finding(case, who, "largest first call, ms", max(stock["first"]) * _MILLI),
        Finding(case, who, "fastest later call, ms", min(stock["later"]) * _MILLI),
        Finding(case, who, "slowest later call, ms", max(stock["later"]) * _MILLI),
    ]
