"""Optimizes models and prints a row of each: ``python -m benchmarks.optimize --dtype bfloat16``.

Each row is of one run: the model as it is, then each trial, then what is in use. Results that
differ by more than rounding would have been refused. The plan is then applied in another process:
seconds until its first results there, and how far these are from the ones here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Final

import torch

from benchmarks.optimize._models import MODELS, build, tensors_of
from torchyard import optimize
from torchyard.optimization import Plan

_COLUMNS: Final = (
    *("model", "ms before", "after", "times", "MB before", "after", "what is in use"),
    *("error", "first call, s", "trials, s", "second process, s", "off"),
)


def main() -> int:
    """Run the command; 1 where ``undo()`` or a second process gives other results."""
    parser = argparse.ArgumentParser(prog="benchmarks.optimize", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help="names; all of them")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for each model")
    parser.add_argument("--skip", nargs="*", default=[], help="optimizations that are not tried")
    parser.add_argument("--json", type=Path, help="write the reports to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("|", " | ".join(_COLUMNS), "|")
    print("| --- " * len(_COLUMNS) + "|")
    reports, status = {}, 0
    for name in options.models:
        model, given = build(name, options.dtype)
        with torch.no_grad():
            expected = tensors_of(model(**given))
        done = optimize(
            model, given, budget=options.budget, skip=options.skip, progress=not options.json
        )
        report = done.report
        assert report is not None
        reports[name] = report.to_json()
        with torch.no_grad():
            now = tensors_of(model(**given))
            done.undo()
            pairs = zip(tensors_of(model(**given)), expected, strict=True)
            status |= not all(torch.equal(one, other) for one, other in pairs)
        seconds, off = _second_process(name, options.dtype, done.plan, now)
        # Each is this far from the model at most: they may be twice as far from each other.
        status |= off > 2 * max(report.error, torch.finfo(torch.float32).eps)
        before, after = report.before, report.after
        used = ", ".join(f"{one.optimization} {one.variant}" for one in report.in_use) or "nothing"
        print(
            f"| {name} | {before.seconds * 1e3:.1f} | {after.seconds * 1e3:.1f} | "
            f"{before.seconds / after.seconds:.2f} | {before.memory / 1e6:.1f} | "
            f"{after.memory / 1e6:.1f} | {used} | {report.error:.1e} | "
            f"{report.first_seconds:.1f} | {report.seconds:.0f} | {seconds:.1f} | {off:.1e} |",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(reports, indent=1))
    return status


def _second_process(
    name: str, dtype: str, plan: Plan, wanted: list[torch.Tensor]
) -> tuple[float, float]:
    """Apply a plan to the model in another process.

    Returns:
        Seconds until its first results, and their distance from this process's, as a share.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan.save(Path(folder, "plan.json"))
        module = "benchmarks.optimize._second_process"
        subprocess.run([sys.executable, "-m", module, name, dtype, folder], check=True)
        found = torch.load(Path(folder, "found.pt"), weights_only=True)
    results = found["results"]
    assert len(results) == len(wanted)
    off = sum(float((a - b).double().square().sum()) for a, b in zip(results, wanted, strict=True))
    norm = sum(float(b.double().square().sum()) for b in wanted)
    return found["seconds"], (off / norm) ** 0.5


if __name__ == "__main__":
    sys.exit(main())
