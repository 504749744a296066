"""Optimizes models and prints a row of each: ``python -m benchmarks.optimize --dtype bfloat16``.

Each row is of one run: the model as it is, then each trial, then what is in use. Results that
differ by more than rounding would have been refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import torch

from benchmarks.optimize._models import MODELS
from torchyard import optimize


def main() -> int:
    """Run the command; 1 where a model is not what it was after ``undo()``."""
    parser = argparse.ArgumentParser(prog="benchmarks.optimize", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help="names; all of them")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for each model")
    parser.add_argument("--skip", nargs="*", default=[], help="optimizations that are not tried")
    parser.add_argument("--json", type=Path, help="write the reports to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dtype = getattr(torch, options.dtype)
    print(
        "| model | ms before | after | times | what is in use | error | first call, s | trials, s |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    reports, status = {}, 0
    for name in options.models:
        torch.manual_seed(0)
        model, given = MODELS[name]()
        model = model.eval().to(dtype)
        given = {
            key: value.to(dtype)
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for key, value in given.items()
        }
        with torch.no_grad():
            expected = _tensors(model(**given))
        done = optimize(
            model, given, budget=options.budget, skip=options.skip, progress=not options.json
        )
        report = done.report
        assert report is not None
        reports[name] = report.to_json()
        before, after = report.before.seconds, report.after.seconds
        used = ", ".join(f"{one.optimization} {one.variant}" for one in report.in_use) or "nothing"
        print(
            f"| {name} | {before * 1e3:.1f} | {after * 1e3:.1f} | {before / after:.2f} | {used} | "
            f"{report.error:.1e} | {report.first_seconds:.1f} | {report.seconds:.0f} |",
            flush=True,
        )
        with torch.no_grad():
            done.undo()
            pairs = zip(_tensors(model(**given)), expected, strict=True)
            status |= not all(torch.equal(one, other) for one, other in pairs)
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))
    return status


def _tensors(output: object) -> list[torch.Tensor]:
    values = [output] if isinstance(output, torch.Tensor) else getattr(output, "values", list)()
    return [value for value in values if isinstance(value, torch.Tensor)]


if __name__ == "__main__":
    sys.exit(main())
