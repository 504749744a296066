"""``nox -s bench [-- --quick] [--json FILE] [case ...]``"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import torch

import torchyard
from benchmarks.cases import CASES
from benchmarks.contestants import OURS
from benchmarks.measure import Row, WrongResultError, measure

__all__: list[str] = []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=sys.modules[__name__].__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases; all of them by default")
    parser.add_argument("--quick", action="store_true", help="short sequences, few rounds")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each contestant")
    parser.add_argument("--json", type=Path, help="write the rows and the machine there")
    return parser.parse_args()


def _machine() -> dict[str, object]:
    platform = torchyard.probe_platform()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "machine": platform.machine,
        "cpu_features": sorted(platform.cpu_features),
        "cores": platform.cpu_cores,
        "threads": torch.get_num_threads(),
        "python": platform.python,
        "torch": platform.torch,
        "torchyard": torchyard.__version__,
        "commit": commit,
    }


def _print(rows: list[Row]) -> None:
    ours = next(row.milliseconds for row in rows if row.contestant == OURS)
    for row in rows:
        print(
            f"{row.case:<16} {row.contestant:<24} {row.milliseconds:>10.3f} ms "
            f"(+-{row.spread:.3f})  {row.milliseconds / ours:>6.2f} x ours  error {row.error:.1e}"
        )


def _main() -> int:
    arguments = _arguments()
    cases = [case for case in CASES if not arguments.cases or case.name in arguments.cases]
    if not cases:
        print(f"no such case; there are: {', '.join(case.name for case in CASES)}")
        return 2
    rows: list[Row] = []
    for case in cases:
        chosen = case.shortened(8) if arguments.quick else case
        try:
            measured = measure(chosen, rounds=3 if arguments.quick else arguments.rounds)
        except WrongResultError as error:
            print(f"WRONG, not timed: {error}")
            return 1
        _print(measured)
        rows += measured
    if arguments.json is not None:
        data = {"machine": _machine(), "rows": [dataclasses.asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
