"""The matrix of recurrent layers: what passes, what is refused and why, what is wrong.

``python -m packages.export.tests.matrix [--targets pt2,onnx] [--every N] [--stock]`` prints a line
per kind of layer and form, ours and stock torch beside it, and ends in 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from packages.export.tests.recurrent import Cell, axes_of, cells, prepared
from torchyard_export import ExportError, FindingKind, export

RANGES = {"batch": "batch:1..5", "time": "time:1..17"}
# What a stock program is tried at: (batch, time).
TRIALS = ((3, 7), (1, 1), (5, 17), (2, 4))
WRONG = {FindingKind.WRONG_RESULT, FindingKind.GRU_RESET_ORDER}


def ours(cell: Cell, targets: tuple[str, ...]) -> dict[str, str]:
    """Export a cell; return stage -> ``passed``, ``wrong: why`` or ``refused: why``.

    A wrong result is what export itself found and refused: it never becomes an artifact.
    """
    model, kwargs = prepared(cell)
    dynamic = {
        name: {axis: RANGES[dimension] for axis, dimension in axes.items()}
        for name, axes in axes_of(cell).items()
    }
    longest: int | str = 7 if cell.axes == "batch" else "time"
    values = {"lengths": (1, longest)} if cell.packed else None
    found = {}
    for target in targets:
        try:
            artifact = export(
                *(model, (), kwargs), dynamic=dynamic, values=values, targets=[target], trials=1
            )
        except ExportError as error:
            first = error.findings[0]
            word = "wrong" if first.kind in WRONG else "refused"
            found[target] = f"{word}: {first.kind}: {first.text.splitlines()[0][:160]}"
            continue
        for stage in artifact.report.stages:
            found[stage.name] = "passed" if stage.passed else "wrong: see the report"
        found[target] = "passed" if artifact.verify().passed else "wrong: golden calls"
    return found


def stock(cell: Cell) -> dict[str, str]:
    """Do the same with ``torch.export`` alone; stages as above, parity within 1e-4."""
    found = {}
    for name, dims in (
        ("Dim", {"batch": Dim("batch", min=1, max=5), "time": Dim("time", min=1, max=17)}),
        ("Dim.AUTO", {"batch": Dim.AUTO, "time": Dim.AUTO}),
    ):
        model, kwargs = prepared(cell)
        shapes: dict[str, Any] = {
            name: {axis: dims[dimension] for axis, dimension in axes.items()}
            for name, axes in axes_of(cell).items()
        }
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.export.export(model, (), kwargs, dynamic_shapes=shapes)
        except Exception as error:
            text = str(error).strip().splitlines()
            reason = f"refused: {type(error).__name__}: {(text or [''])[0][:100]}"
            found[f"export, {name}"] = found[f"decompositions, {name}"] = reason
            continue
        # Dim.AUTO never promises a size of 1.
        least = 2 if dims["batch"] is Dim.AUTO else 1
        found[f"export, {name}"] = _tried(cell, model, program.module(), least)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lowered = program.run_decompositions()
        except Exception as error:
            found[f"decompositions, {name}"] = f"refused: {type(error).__name__}"
            continue
        found[f"decompositions, {name}"] = _tried(cell, model, lowered.module(), least)
    return found


@torch.no_grad()
def _tried(cell: Cell, model: torch.nn.Module, program: Any, least: int) -> str:
    for batch, time in TRIALS:
        if min(batch, time) < least:
            continue
        if cell.axes == "batch":
            time = 7
        elif cell.axes == "time":
            batch = 3
        _, kwargs = prepared(cell, batch=batch, time=time)
        expected = _leaves(model(**kwargs))
        try:
            got = _leaves(program(**kwargs))
        except Exception as error:
            return f"frozen: refuses batch={batch} time={time}: {type(error).__name__}"
        for left, right in zip(expected, got, strict=True):
            if left.shape != right.shape or not torch.allclose(left, right, atol=1e-4):
                return f"wrong at batch={batch} time={time}"
    return "passed"


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [leaf for item in value for leaf in _leaves(item)]


def main(words: list[str]) -> int:
    """Print the tables; return whether anything of ours is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", default="pt2")
    parser.add_argument("--every", type=int, default=1, help="take each Nth cell alone")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(words)
    # What torch logs of a refusal is counted as one.
    logging.disable(logging.WARNING)
    chosen = list(cells())[given.offset :: given.every]
    totals: dict[tuple[str, str], Counter[str]] = {}
    reasons: Counter[tuple[str, str]] = Counter()
    for cell in chosen:
        results = ours(cell, tuple(given.targets.split(",")))
        if given.stock:
            results |= {f"stock {name}": text for name, text in stock(cell).items()}
        for stage, text in results.items():
            word = text.split(":")[0].split(" ")[0]
            totals.setdefault((stage, cell.kind), Counter())[word] += 1
            if text != "passed":
                reasons[stage, text] += 1
                if given.verbose:
                    print(f"{cell}: {stage}: {text}", flush=True)
    for (stage, kind), counts in sorted(totals.items()):
        line = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        print(f"{stage:34} {kind:9} {line}")
    print(f"{len(chosen)} cells")
    for (stage, text), count in reasons.most_common(20):
        print(f"{count:5} x {stage}: {text}")
    mistakes = sum(
        counts["wrong"] for (stage, _), counts in totals.items() if not stage.startswith("stock")
    )
    print(f"{mistakes} wrong of ours")
    return 1 if mistakes else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
