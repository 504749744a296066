"""The table of every op, convention and way to differentiate: ours, and torch's beside it.

``python -m packages.collectives.tests.gradients.table`` prints it; it ends with 1 where a cell of
ours is neither right nor a typed error. ``nox -s collectives`` runs it.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from packages.collectives.tests.enduring_ranks import run_enduring_ranks
from packages.collectives.tests.ranks import RanksError
from torchyard_collectives._oracle.ranks import MODES
from torchyard_collectives._simulation import simulate
from torchyard_collectives.oracle import GradientMismatchError, check_collective_grads

from .cases import CASES, CONVENTIONS, inputs, program
from .stock import STOCK, stock

# Of one collective; starting processes and compiling take some of it.
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison with the dense program.

    Attributes:
        outcome: "right", "typed error" (one of ours), "error", "wrong" or "hang"; "none": torch
            has no such op.
        text: of an error, its last line.
    """

    op: str
    convention: str
    mode: str
    size: int
    outcome: str
    text: str = ""


def _outcome(check: functools.partial[object]) -> tuple[str, str]:
    try:
        check()
    except GradientMismatchError as error:
        return "wrong", str(error).splitlines()[0]
    except RanksError as error:
        lines = [text.strip().splitlines()[-1] for text in error.reports if text.strip()]
        told = [line for line in lines if line != "returned"]
        late = all("did not end" in text or text == "returned" for text in error.reports)
        if late:
            return "hang", told[0][:160]
        ours = told[0].startswith("torchyard_collectives._errors.")
        return "typed error" if ours else "error", told[0][:160]
    return "right", ""


def _ours(name: str, convention: str, mode: str, size: int, backend: str) -> Cell:
    check = functools.partial(
        check_collective_grads,
        functools.partial(program, name=name, convention=convention, size=size),
        size,
        loss="replicated" if convention.endswith("replicated") else "sum",
        inputs=functools.partial(inputs, name=name),
        modes=[mode],
        launch=functools.partial(run_enduring_ranks, backend, _SECONDS),
    )
    return Cell(name, convention, mode, size, *_outcome(check))


def _stock(name: str, mode: str, size: int, backend: str) -> Cell:
    if name not in STOCK:
        return Cell(name, "sum", mode, size, "none")
    dense = functools.partial(program, name=name, convention="sum", size=size)
    check = functools.partial(
        check_collective_grads,
        functools.partial(stock, name=name),
        size,
        inputs=functools.partial(inputs, name=name),
        modes=[mode],
        dense=lambda ranks: simulate(size, lambda rank: dense(*ranks[rank])),
        launch=functools.partial(run_enduring_ranks, backend, _SECONDS),
    )
    return Cell(name, "sum", mode, size, *_outcome(check))


def _table(cells: Sequence[Cell], modes: Sequence[str]) -> str:
    """Return a table of ops and modes; a cell has the results of its conventions and sizes."""
    lines = [f"| op | {' | '.join(modes)} |", "| --- |" + " --- |" * len(modes)]
    for op in dict.fromkeys(cell.op for cell in cells):
        row = []
        for mode in modes:
            counts = Counter(c.outcome for c in cells if (c.op, c.mode) == (op, mode))
            row.append(", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())) or "-")
        lines.append(f"| {op} | {' | '.join(row)} |")
    return "\n".join(lines)


def _totals(cells: Sequence[Cell]) -> str:
    counts = Counter(cell.outcome for cell in cells)
    return f"{len(cells)} cells: " + ", ".join(f"{n} {o}" for o, n in sorted(counts.items()))


def _progress(cell: Cell) -> Cell:
    if cell.outcome not in ("right", "typed error", "none"):
        print(
            f"  {cell.outcome}: {cell.op}, {cell.convention}, {cell.mode}, {cell.size} ranks: "
            f"{cell.text}",
            file=sys.stderr,
            flush=True,
        )
    return cell


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 where a cell of ours is neither right nor a typed error."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", default="2,3,4", help="numbers of processes")
    parser.add_argument("--modes", default=",".join(MODES), help="ways to differentiate")
    parser.add_argument("--ops", default="", help="only ops whose name holds this")
    parser.add_argument("--only", choices=["ours", "stock"], help="one of the two tables")
    parser.add_argument("--backend", default="gloo", help="of torch.distributed")
    parser.add_argument("--json", type=Path, help="write every cell to this file")
    options = parser.parse_args(arguments)
    sizes, modes = [int(n) for n in options.sizes.split(",")], options.modes.split(",")
    names = [case.name for case in CASES if options.ops in case.name]
    if not names:
        parser.error(f"--ops: no op has {options.ops!r} in its name")

    ours = [
        _progress(_ours(name, convention, mode, size, options.backend))
        for size in sizes
        for name in names
        for mode in modes
        for convention in CONVENTIONS
        # The slowest mode once for each op: graphs are the same for other sizes and spellings.
        if mode != "inductor" or (size == sizes[0] and not convention.startswith("typed"))
        if options.only != "stock"
    ]
    if ours:
        print(f"torchyard_collectives: {_totals(ours)}\n\n{_table(ours, modes)}\n", flush=True)
    theirs = [
        _progress(_stock(name, mode, size, options.backend))
        for size in sizes
        for name in names
        for mode in modes
        if mode != "inductor" and options.only != "ours"
    ]
    if theirs:
        print(f'torch {torch.__version__}, "sum" alone: {_totals(theirs)}\n')
        print(_table(theirs, [mode for mode in modes if mode != "inductor"]))
    if options.json:
        options.json.write_text(
            json.dumps([[asdict(c) for c in cells] for cells in (ours, theirs)])
        )
    return int(any(cell.outcome not in ("right", "typed error") for cell in ours))


if __name__ == "__main__":
    sys.exit(main())
