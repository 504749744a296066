"""Rows as tables, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from rich.table import Table

import torchyard
from benchmarks.measuring.cases import Bar, Case, Rival
from benchmarks.measuring.contestants import OURS
from benchmarks.measuring.limits import Limits
from benchmarks.measuring.measure import Row, met

__all__ = ["bars_table", "brief_table", "findings_table", "limits_text", "rows_table", "write_json"]


def rows_table(case: Case, rows: list[Row]) -> Table:
    """Return every contestant of a case, ours and its best rival marked."""
    table = Table("case", "contestant", "computed by", box=None)
    for heading in ("median", "spread", "time / ours", "limit", "best", "GB/s", "error"):
        table.add_column(heading, justify="right")
    best = min((row for row in rows[1:]), key=lambda row: row.times_ours, default=None)
    for row in rows:
        table.add_row(
            escape(row.case),
            row.contestant,
            row.computed_by,
            f"{row.milliseconds:.3g} ms",
            f"{row.spread:.2g}",
            f"{row.times_ours:.2f}",
            _share(row.share),
            _share(row.best_share),
            "" if row.bytes_per_second is None else f"{row.bytes_per_second / 1e9:.1f}",
            f"{row.error:.1e}",
            style="bold" if row is best or row.contestant == OURS else "dim",
        )
    return table


def brief_table(measured: Sequence[tuple[Case, list[Row]]]) -> Table:
    """Return a line per case: ours against the best of the others."""
    table = Table("case", "computed by", box=None)
    for heading in ("ours", "best other", "other / ours"):
        table.add_column(heading, justify="right")
    for case, rows in measured:
        best = min(rows[1:], key=lambda row: row.times_ours)
        table.add_row(
            escape(case.name),
            rows[0].computed_by,
            f"{rows[0].milliseconds * 1e3:.1f} us",
            f"{best.milliseconds * 1e3:.1f} us",
            f"{best.times_ours:.2f}",
        )
    return table


def bars_table(measured: Sequence[tuple[Case, list[Row]]]) -> Table:
    """Return what was asked of each case, and what it reached."""
    table = Table("case", "computed by", "against", box=None)
    for heading in ("asked", "reached", ""):
        table.add_column(heading, justify="right")
    for case, rows in measured:
        for bar in case.bars:
            reached, enough = met(bar, rows)
            table.add_row(
                escape(case.name),
                rows[0].computed_by,
                bar.rival,
                _amount(bar, bar.at_least),
                "" if reached is None else _amount(bar, reached),
                {True: "met", False: "MISSED", None: "UNVERIFIED"}[enough],
                style={True: "", False: "bold", None: "dim"}[enough],
            )
    return table


def findings_table(title: str, findings: Sequence[Any]) -> Table:
    """Return dataclass instances of one type as a table, a column per field."""
    table = Table(title=title, title_justify="left", box=None)
    names = [field.name for field in dataclasses.fields(findings[0])]
    for number, name in enumerate(names):
        table.add_column(name.replace("_", " "), justify="left" if number < 2 else "right")
    for finding in findings:
        table.add_row(*(_cell(getattr(finding, name)) for name in names))
    return table


def limits_text(limits: Limits) -> str:
    """Return the machine's limits in a line."""
    threads = torch.get_num_threads()
    if limits.problem:
        return f"limits of {threads} threads: UNVERIFIED: {limits.problem}"
    parts = [f"float32 {(limits.float32_flops or 0) / 1e9:.0f} GFLOP/s"]
    if limits.bfloat16_flops is not None:
        parts.append(f"bfloat16 {limits.bfloat16_flops / 1e9:.0f} GFLOP/s")
    parts.append(f"read {(limits.read_bytes or 0) / 1e9:.0f} GB/s")
    return f"limits of {threads} threads: {', '.join(parts)}"


def write_json(
    path: Path, limits: Limits, suites: dict[str, list[Any]], cases: dict[str, Case]
) -> None:
    """Write the machine and every row, each with its suite and what was asked of its case."""
    rows = [
        {
            "suite": suite,
            **dataclasses.asdict(row),
            "bars": _asked(cases.get(getattr(row, "case", ""))) if isinstance(row, Row) else [],
        }
        for suite, found in suites.items()
        for row in found
    ]
    data = {"machine": _machine(limits), "rows": rows}
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _asked(case: Case | None) -> list[dict[str, Any]]:
    return [] if case is None else [dataclasses.asdict(bar) for bar in case.bars]


def _machine(limits: Limits) -> dict[str, object]:
    platform = torchyard.probe_platform()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "machine": platform.machine,
        "processor": torchyard.cpu_model(),
        "cpu_features": sorted(platform.cpu_features),
        "cores": platform.cpu_cores,
        "threads": torch.get_num_threads(),
        "limits": dataclasses.asdict(limits),
        "python": platform.python,
        "torch": platform.torch,
        "torchyard": torchyard.__version__,
        "commit": commit,
    }


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _amount(bar: Bar, amount: float) -> str:
    return f"{amount:.0%}" if bar.rival is Rival.LIMIT else f"{amount:.2f}x"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "met" if value else "MISSED"
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value))
