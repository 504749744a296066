"""Prints what comes of every trial: ``python -m tests.fuzz [words that names of calls contain]``.

A line of each that is not clear or right, then a table of the packages.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict

from tests.fuzz.catalogue import CALLS, prepare
from tests.fuzz.child import outcomes
from tests.fuzz.harness import trials

_COLUMNS = ("clear", "right", "raw", "wrong", "crash")


def main(words: list[str]) -> int:
    """Return 1 where a call was raw, wrong or a crash."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for call in CALLS:
        if words and not any(word in call.name for word in words):
            continue
        began = time.monotonic()
        made = list(trials(call))
        found: Counter[str] = Counter()
        for trial, outcome in zip(made, outcomes(made, prepare), strict=True):
            found[outcome.kind] += 1
            if outcome.kind not in ("clear", "right"):
                print(f"{outcome.kind}: {trial}: {outcome.text}", flush=True)
        counts[call.name.partition(".")[0]] += found
        print(f"{call.name}: {dict(found)} in {time.monotonic() - began:.1f} s", flush=True)
    print(f"\n{'package':28}{'calls':>8}", *(f"{column:>8}" for column in _COLUMNS))
    total: Counter[str] = Counter()
    for package, found in counts.items():
        total += found
        _print_row(package, found)
    _print_row("all", total)
    return int(any(total[kind] for kind in ("raw", "wrong", "crash")))


def _print_row(name: str, found: Counter[str]) -> None:
    print(f"{name:28}{found.total():8}", *(f"{found[column]:8}" for column in _COLUMNS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
