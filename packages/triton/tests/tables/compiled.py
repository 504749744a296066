"""Print the tables of docs/measurements/triton.md, of what the command that compiles has written.

``python -m torchyard_triton.compiled all --out rows.json``, then
``python -m packages.triton.tests.tables.compiled rows.json``; or of certificates of the profile
``compiled``: ``python -m packages.triton.tests.tables.compiled docs/certificates/*-compiled.tgz``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from torchyard_conformance import Status
from torchyard_conformance._evidence._verify import read_bundle
from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.compiled import Figures

__all__ = ["certified", "tables"]

_LAW: Final = "compilation.kernels-compile"

_OPS: Final = ("topk", "linear", "pointwise", "recurrent")
# Title -> kernels of attention; other ops' are those that are there.
_ATTENTION: Final[Mapping[str, tuple[str, ...]]] = {
    "Attention": (
        *("attention_forward", "attention_query_gradient", "attention_key_gradient"),
        *("attention_captured_gradient", "attention_delta"),
    ),
    "Decoding, pages, packed sequences": (
        *("attention_decode", "attention_decode_pages", "attention_varlen", "attention_merge"),
    ),
    "Rows and keys that hold NaN or an infinity, computed again": (
        *("attention_exact_forward", "attention_exact_query_gradient"),
        "attention_exact_key_gradient",
    ),
}


def tables(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines of Markdown: of each kernel the most of any program, and the seconds.

    Args:
        report: as ``torchyard_triton.compiled`` writes it.
    """
    rows = [Figures(**row) for row in report["kernels"]]
    heads = [row for row in rows if "-d" in row.program]
    others = [row for row in rows if row not in heads]
    kernels = list(dict.fromkeys(row.kernel for row in others))
    groups = {
        title: [name for name in names if name in kernels] for title, names in _ATTENTION.items()
    }
    groups["Other ops"] = [name for name in kernels if name.startswith(_OPS)]
    for title, names in groups.items():
        if names:
            yield from (f"{title}:", "")
            yield from _most(others, names)
            yield ""
    if heads:
        yield from ("Heads of other sizes:", "")
        heads.sort(key=lambda row: (len(row.program), row.program))
        for program, found in groupby(heads, key=lambda row: row.program):
            some = list(found)
            yield from (f"{program}:", "")
            yield from _most(some, list(dict.fromkeys(row.kernel for row in some)))
            yield ""
    yield from _table(
        ("architecture", "kernels", "seconds"),
        [
            (name, str(sum(row.architecture == name for row in rows)), f"{seconds:.0f}")
            for name, seconds in report["seconds"].items()
        ],
    )
    yield ""
    faults = len(report["faults"])
    yield f"{len(rows)} kernels, {faults} faults, {report['total'] / 60:.0f} minutes of one core."


def _most(rows: Sequence[Figures], kernels: Sequence[str]) -> Iterator[str]:
    """Yield a table with a row for each architecture, and a column for each kernel."""
    titles = [name.removeprefix("attention_").replace("_", " ") for name in kernels]
    lines = []
    for architecture in dict.fromkeys(row.architecture for row in rows):
        of = [row for row in rows if row.architecture == architecture]
        cells = [_cell([row for row in of if row.kernel == kernel]) for kernel in kernels]
        if any(cells):
            matrix = (row.matrix for row in of if row.matrix and row.kernel in kernels)
            lines.append((architecture, next(matrix, ""), *cells))
    yield from _table(("architecture", "matrix instruction", *titles), lines)


def _cell(rows: Sequence[Figures]) -> str:
    """Return registers / spilled / bytes of shared memory; empty where nothing was compiled."""
    if not rows:
        return ""
    most = (max(getattr(row, name) for row in rows) for name in ("registers", "spills"))
    return " / ".join((*map(str, most), f"{max(row.shared_memory for row in rows):,}"))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (titles, ["---"] * len(titles), *rows):
        yield f"| {' | '.join(row)} |"


def certified(paths: Sequence[Path]) -> dict[str, Any]:
    """Return what certificates hold of ``<vendor>.triton``, as the command writes it.

    Args:
        paths: of bundles by the profile ``compiled``.
    """
    kernels: list[dict[str, Any]] = []
    faults: list[str] = []
    seconds: dict[str, float] = {}
    for result in (found for path in paths for found in read_bundle(path).report.results):
        place = result.case.split("/")
        if result.law != _LAW or not place[0].partition("@")[0].endswith(".triton"):
            continue
        if result.status is not Status.PASS:
            faults.append(f"{result.case}: {result.text}")
            continue
        architecture, kernel, program = place[2:]
        names = {"architecture": architecture, "kernel": kernel, "program": program}
        kernels.append({**names, **result.figures})
        taken = float(result.figures["seconds"])
        seconds[architecture] = seconds.get(architecture, 0.0) + taken
    order = list(ARCHITECTURES)
    kernels.sort(key=lambda row: order.index(row["architecture"]))
    seconds = {name: seconds[name] for name in order if name in seconds}
    return {
        "kernels": kernels,
        "faults": faults,
        "seconds": seconds,
        "total": sum(seconds.values()),
    }


def _read(words: Sequence[str]) -> Mapping[str, Any]:
    paths = [Path(word) for word in words]
    if paths[0].suffix == ".tgz":
        return certified(paths)
    found: Mapping[str, Any] = json.loads(paths[0].read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    print("\n".join(tables(_read(sys.argv[1:]))))
