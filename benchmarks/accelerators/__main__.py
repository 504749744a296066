"""``python -m benchmarks.accelerators [CASE ...] [--device cuda] [--json FILE] [--quick]``

Every implementation that supports a case on the device, and torch's own functions beside them, are
judged against float64 and then timed, all in alternation. The exit status is 1 where a result is
wrong, or where what the registry chooses takes more than a twentieth longer than the fastest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import torch

from benchmarks.accelerators.attention import race_attention
from benchmarks.accelerators.cases import CASES
from benchmarks.accelerators.op_race import race_op
from benchmarks.accelerators.ops import OPS
from benchmarks.accelerators.row import Row
from benchmarks.accelerators.timing import Limits, Timer

__all__: list[str] = []

_BEHIND: Final = 1.05


def _rows(options: argparse.Namespace, timer: Timer, limits: Limits) -> Iterator[Row]:
    rounds = 2 if options.quick else options.rounds
    for name in options.cases or (*CASES, *OPS):
        if name in OPS:
            for title, case in OPS[name](options.device, options.quick):
                yield from race_op(title, case, rounds, timer, limits)
            continue
        attention = CASES[name]
        if options.quick:
            attention = replace(
                attention,
                q_length=min(attention.q_length, 200),
                kv_length=min(attention.kv_length, 200),
            )
        dtype = getattr(torch, options.dtype)
        yield from race_attention(name, attention, dtype, rounds, timer, limits)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.accelerators", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join((*CASES, *OPS)))
    parser.add_argument("--device", default="cuda", help="torch device type")
    parser.add_argument("--dtype", default="bfloat16", help="of query, key and value")
    parser.add_argument("--rounds", type=int, default=10, help="timed runs of each")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--quick", action="store_true", help="short calls; the times mean nothing")
    options = parser.parse_args()
    timer = Timer(options.device, quick=options.quick)
    limits = timer.limits()
    print(f"{limits.teraflops:.0f} TFLOP/s in bfloat16, {limits.bandwidth:.0f} GB/s", flush=True)
    found: list[Row] = []
    for row in _rows(options, timer, limits):
        found.append(row)
        print(row, flush=True)
    if options.json is not None:
        report = {"limits": asdict(limits), "rows": [asdict(row) for row in found]}
        options.json.write_text(f"{json.dumps(report, indent=1)}\n", encoding="utf-8")
    wrong = [row for row in found if row.wrong]
    behind = [row for row in found if row.chosen and row.behind > _BEHIND]
    ran = [row for row in found if not row.absent]
    print(f"{len(ran)} rows, {len(wrong)} wrong, {len(behind)} choices behind by more than 5 %")
    slow = bool(behind) and not options.quick
    return 1 if wrong or slow or not ran else 0


if __name__ == "__main__":
    sys.exit(_main())
