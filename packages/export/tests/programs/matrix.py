"""The matrix of recurrent layers: what passes, what is refused and why, what is wrong.

``python -m packages.export.tests.programs.matrix [--targets pt2,onnx] [--every N] [--stock]``
prints a line per form and kind of layer, ours and stock torch beside it, and ends in 1 where
anything is wrong.

All of it takes hours of one core. ``--save FILE`` writes results as JSON after each cell and, run
again, goes on behind what is there; ``--show FILE ...`` prints the table of files together.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from packages.export.tests.models.recurrent import Cell, axes_of, cells, prepared
from packages.export.tests.programs.stock import stock
from torchyard_export import Artifact, ExportError, FindingKind, export

RANGES = {"batch": "batch:1..5", "time": "time:1..17"}
WRONG = {FindingKind.WRONG_RESULT, FindingKind.GRU_RESET_ORDER}
COLUMNS = ("LSTM", "GRU", "RNN-tanh", "RNN-relu", "padded", "packed", "all")

# Form of the program -> ``passed``, ``wrong: why`` or ``refused: why``.
Results = dict[str, str]


def ours(cell: Cell, targets: tuple[str, ...]) -> Results:
    """Export a cell, all targets together as far as they take it.

    A wrong result is what export itself found and refused: it never becomes an artifact.
    """
    found: Results = {}
    rest = list(targets)
    while rest:
        try:
            artifact = _export(cell, rest)
        except ExportError as error:
            first = error.findings[0]
            word = "wrong" if first.kind in WRONG else "refused"
            said = f"{word}: {first.kind}: {first.text.splitlines()[0][:160]}"
            blamed = [target for target in rest if first.text.startswith(f"{target}: ")]
            found |= dict.fromkeys(blamed or rest, said)
            rest = [target for target in rest if target not in found]
            continue
        for stage in artifact.report.stages:
            found[stage.name] = "passed" if stage.passed else "wrong: see the report"
        for stage in artifact.verify().stages:
            if not stage.passed:
                found[stage.name] = "wrong: golden calls"
        break
    return found


def _export(cell: Cell, targets: list[str]) -> Artifact:
    model, kwargs = prepared(cell)
    dynamic = {
        name: {axis: RANGES[dimension] for axis, dimension in axes.items()}
        for name, axes in axes_of(cell).items()
    }
    longest: int | str = 7 if cell.axes == "batch" else "time"
    values = {"lengths": (1, longest)} if cell.packed else None
    return export(*(model, (), kwargs), dynamic=dynamic, values=values, targets=targets, trials=1)


def judged(cell: Cell, given: argparse.Namespace) -> Results:
    """Return the results of a cell, stock torch's beside ours."""
    found: Results = {}
    if given.targets:
        found |= ours(cell, tuple(given.targets.split(",")))
    if given.stock:
        theirs = stock(cell, onnx=given.stock_onnx, compiled=given.stock_compiled)
        found |= {f"stock {name}": text for name, text in theirs.items()}
    return found


def show(results: Mapping[str, Results]) -> int:
    """Print the tables; return how many results of ours are wrong."""
    totals: dict[str, dict[str, Counter[str]]] = {}
    reasons: Counter[tuple[str, str]] = Counter()
    for cell, found in results.items():
        columns = (cell.split(" ")[0], "packed" if " packed" in cell else "padded", "all")
        for form, text in found.items():
            for column in columns:
                of_form = totals.setdefault(form, {})
                of_form.setdefault(column, Counter())[text.split(":")[0]] += 1
            if text != "passed":
                reasons[form, text] += 1
    heads = "".join(f"{column:>12}" for column in COLUMNS)
    print(f"{'passed, of those tried':32}{heads}  refused  frozen partial   wrong")
    for form, counts in sorted(totals.items(), key=lambda item: item[0].startswith("stock")):
        shown = [
            f"{found['passed']} of {found.total()}"
            for found in (counts.get(column, Counter()) for column in COLUMNS)
        ]
        rest = counts["all"]
        print(
            f"{form:32}" + "".join(f"{text:>12}" for text in shown),
            f"{rest['refused']:8}{rest['frozen']:8}{rest['partial']:8}{rest['wrong']:8}",
        )
    print(f"{len(results)} cells of {len(list(cells()))}")
    for (form, text), count in sorted(reasons.items(), key=lambda item: (item[0][0], -item[1])):
        print(f"{count:5} x {form}: {text}")
    mistakes = sum(
        counts["all"]["wrong"] for form, counts in totals.items() if not form.startswith("stock")
    )
    print(f"{mistakes} wrong of ours")
    return mistakes


def _read(path: Path) -> dict[str, Results]:
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _together(paths: list[Path]) -> dict[str, Results]:
    found: dict[str, Results] = {}
    for path in paths:
        for cell, results in _read(path).items():
            found.setdefault(cell, {}).update(results)
    return found


def main(words: list[str]) -> int:
    """Print the tables; return whether anything of ours is wrong, or nothing was tried."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", default="pt2", help="by commas; empty for stock torch alone")
    parser.add_argument("--every", type=int, default=1, help="take each Nth cell alone")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--stock-onnx", action="store_true")
    parser.add_argument("--stock-compiled", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--show", type=Path, nargs="+")
    given = parser.parse_args(words)
    # What torch logs and warns of a refusal is counted as one.
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    if given.show:
        results = _together(given.show)
        return 1 if show(results) or not results else 0
    results = _read(given.save) if given.save else {}
    for cell in list(cells())[given.offset :: given.every]:
        if str(cell) in results:
            continue
        results[str(cell)] = found = judged(cell, given)
        if given.save:
            given.save.write_text(json.dumps(results, indent=1))
        for form, text in found.items():
            if given.verbose and text != "passed":
                print(f"{cell}: {form}: {text}", flush=True)
    return 1 if show(results) or not results else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
