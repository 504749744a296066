"""What ``torchyard certify`` shows a person."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torchyard_conformance._law import all_laws
from torchyard_conformance._reports._result import LawResult, Report
from torchyard_conformance._status import Status

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: Final = {
    Status.PASS: "green",
    Status.FAIL: "bold red",
    Status.NOT_SUPPORTED: "dim",
    Status.UNVERIFIED: "yellow",
}
_WIDTH_WITHOUT_TERMINAL: Final = 120


def console() -> Console:
    """Return a console that writes text as it is: a plugin's words are no markup."""
    from rich.console import Console

    width = None
    if not sys.stdout.isatty():
        width = shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns
    return Console(markup=False, highlight=False, emoji=False, width=width)


def show_report(report: Report, seconds: float) -> None:
    """Write the laws, the failures, and what follows from them."""
    out = console()
    where = f" on {', '.join(report.devices)}" if report.devices else ""
    judged = f", {', '.join(report.implementations)} alone" if report.implementations else ""
    out.print(
        f"{report.plugin} {report.plugin_version}{where}{judged}: profile {report.profile}, "
        f"spec {report.spec}",
        soft_wrap=True,
    )
    out.print()
    _show_laws(report)
    out.print()
    for result in report.results:
        if result.status is Status.FAIL:
            show_failure(report, result)
        elif result.status is Status.UNVERIFIED:
            out.print(f"unverified: {result.name}: {result.text}", soft_wrap=True)
    counts = Counter(report.laws().values())
    out.print(
        f"{sum(counts.values())} laws run in {seconds:.0f} s: "
        f"{counts[Status.PASS]} passed, {counts[Status.FAIL]} failed, "
        f"{counts[Status.NOT_SUPPORTED]} not supported, {counts[Status.UNVERIFIED]} unverified",
        soft_wrap=True,
    )


def show_verdict(report: Report) -> None:
    """Write whether the plugin is certified, and every reason why not."""
    out = console()
    if report.certified:
        out.print(f"certified: {report.plugin}, profile {report.profile}", style="bold green")
        return
    out.print(f"not certified: {report.plugin}, profile {report.profile}", style="bold red")
    for reason in report.reasons:
        out.print(f"  {reason}", soft_wrap=True)


def show_bundle(path: Path, digest: str) -> None:
    """Write what was written."""
    console().print(f"bundle: {path}, sha256 {digest}", soft_wrap=True)


def show_failure(report: Report, result: LawResult) -> None:
    """Write what a failure means and how to get it again."""
    out = console()
    laws = {item.id: item for item in all_laws()}
    row = report.expected(result)
    out.print(f"FAILED {result.name}", style="bold red", soft_wrap=True)
    rows = [("expected", f"{row.reason} ({row.link}; until {row.expires})")] if row else []
    if result.law in laws:
        item = laws[result.law]
        rows = [("law", item.summary), *rows, ("fix", item.fix), ("more", item.anchor)]
    rows = [("found", result.text), ("smallest", result.smallest), *rows]
    for label, text in [*rows, ("again", result.reproduce)]:
        if text:
            lines = text.splitlines()
            out.print(f"  {label + ':':<10}{lines[0]}", soft_wrap=True)
            for line in lines[1:]:
                out.print(f"  {'':<10}{line}", soft_wrap=True)
    out.print()


def _show_laws(report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("law", no_wrap=True)
    table.add_column("must", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("cases", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("", overflow="fold")
    for name, status in report.laws().items():
        results = [result for result in report.results if result.law == name]
        counts = Counter(str(result.status) for result in results)
        mixed = len(counts) > 1
        words = ", ".join(f"{count} {found}" for found, count in sorted(counts.items()))
        reasons = sorted({result.text for result in results if result.status is status})
        said = reasons[0] if status is not Status.FAIL and len(reasons) == 1 else ""
        table.add_row(
            name,
            "must" if name in report.mustpass else "",
            Text(str(status), style=_STYLES[status]),
            str(len(results)),
            f"{sum(result.seconds for result in results):.1f}",
            Text(words if mixed else said, style="dim"),
        )
    console().print(table)
