"""``nox -s bench [-- --quick] [--threads N] [--json FILE] [case ...]``"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import torchyard
from benchmarks.cases import CASES
from benchmarks.contestants import OURS
from benchmarks.limits import Limits, measure_limits
from benchmarks.measure import Row, WrongResultError, measure

__all__: list[str] = []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=sys.modules[__name__].__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases; all of them by default")
    parser.add_argument("--quick", action="store_true", help="short sequences, few rounds")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each contestant")
    parser.add_argument("--threads", type=int, default=0, help="threads; 0: as torch would use")
    parser.add_argument("--json", type=Path, help="write the rows and the machine there")
    return parser.parse_args()


def _machine(limits: Limits) -> dict[str, object]:
    platform = torchyard.probe_platform()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "machine": platform.machine,
        "cpu_features": sorted(platform.cpu_features),
        "cores": platform.cpu_cores,
        "threads": torch.get_num_threads(),
        "limits": dataclasses.asdict(limits),
        "python": platform.python,
        "torch": platform.torch,
        "torchyard": torchyard.__version__,
        "commit": commit,
    }


def _table(rows: list[Row]) -> Table:
    table = Table("case", "contestant", box=None)
    for heading in ("median", "spread", "time / ours", "of the limit", "error"):
        table.add_column(heading, justify="right")
    best = min((row for row in rows if row.contestant != OURS), key=lambda row: row.times_ours)
    for row in rows:
        table.add_row(
            row.case,
            row.contestant,
            f"{row.milliseconds:.2f} ms",
            f"{row.spread:.2f}",
            f"{row.times_ours:.2f}",
            "" if row.share is None else f"{row.share:.0%}",
            f"{row.error:.1e}",
            style="bold" if row is best or row.contestant == OURS else "dim",
        )
    return table


def _main() -> int:
    arguments = _arguments()
    known = {case.name: case for case in CASES}
    unknown = [name for name in arguments.cases if name not in known]
    if unknown:
        print(f"no such case: {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    # A log or a file has no width of its own.
    console = Console(width=None if sys.stdout.isatty() else 110)
    limits = measure_limits(torch.get_num_threads())
    console.print(_limits_text(limits))
    chosen = [known[name] for name in arguments.cases] or list(CASES)
    rows: list[Row] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=len(chosen))
        for case in chosen:
            progress.update(task, description=case.name)
            sized = case.shortened(8) if arguments.quick else case
            try:
                measured = measure(sized, limits, rounds=3 if arguments.quick else arguments.rounds)
            except WrongResultError as error:
                console.print(f"WRONG, not timed: {error}")
                return 1
            progress.advance(task)
            console.print(_table(measured))
            rows += measured
    if arguments.json is not None:
        data = {"machine": _machine(limits), "rows": [dataclasses.asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return 0


def _limits_text(limits: Limits) -> str:
    threads = torch.get_num_threads()
    if limits.problem:
        return f"limits of {threads} threads: UNVERIFIED: {limits.problem}"
    parts = [f"float32 {(limits.float32_flops or 0) / 1e9:.0f} GFLOP/s"]
    if limits.bfloat16_flops is not None:
        parts.append(f"bfloat16 {limits.bfloat16_flops / 1e9:.0f} GFLOP/s")
    parts.append(f"read {(limits.read_bytes or 0) / 1e9:.0f} GB/s")
    return f"limits of {threads} threads: {', '.join(parts)}"


if __name__ == "__main__":
    sys.exit(_main())
