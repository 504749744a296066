"""The report as one page of HTML, with nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from torchyard_export._report import Report

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { border-bottom: 1px solid #ccc; padding: .3rem .8rem; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.passed { color: #16602c } .refused { color: #a01c1c }
.bar { background: #dde; display: inline-block; height: .7rem; width: 8rem }
.bar i { background: #46a; display: block; height: 100% }
pre { background: #f4f4f4; overflow-x: auto; padding: .6rem }
"""


def html(report: Report) -> str:
    """Return the page."""
    verdict = "passed" if report.passed else "refused"
    parts = [
        f"<h1>{escape(report.model)}: <span class={verdict}>{verdict}</span></h1>",
        f"<p>Measured against {escape(report.ruler)}.</p>",
        f"<p>Dimensions: {escape(', '.join(report.dimensions) or 'none differs')}.</p>",
        "<h2>Stages</h2>",
        _table(
            ("stage", "cases", "wrong", "from float64", "of the bound", "", "seconds"),
            (
                (
                    escape(stage.name),
                    str(stage.cases),
                    str(stage.wrong),
                    f"{stage.error:.2e}",
                    f"{stage.ratio:.2f}",
                    f"<span class=bar><i style='width:{min(stage.ratio, 1):.0%}'></i></span>",
                    f"{stage.seconds:.2f}",
                )
                for stage in report.stages
            ),
        ),
    ]
    findings = [finding for stage in report.stages for finding in stage.findings]
    for title, found in (("Refused", findings), ("Accepted", list(report.accepted))):
        if found:
            parts.append(f"<h2>{title}</h2>")
            parts += [f"<pre>{escape(finding.render())}</pre>" for finding in found]
    if report.notes:
        parts.append("<h2>Notes</h2><ul>")
        parts += [f"<li>{escape(note)}</li>" for note in report.notes]
        parts.append("</ul>")
    names = sorted({name for sizes in report.sizes for name in sizes})
    if names:
        rows = ([str(sizes.get(name, "")) for name in names] for sizes in report.sizes)
        parts += ["<h2>Calls that were compared</h2>", _table(names, rows)]
    parts += ["<h2>Versions</h2>", _table((), map(_pair, report.versions.items()))]
    body = "\n".join(parts)
    title = escape(report.model)
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8>"
        f"<title>{title}</title><style>{_STYLE}</style>\n{body}\n</html>\n"
    )


def _pair(item: tuple[str, str]) -> tuple[str, str]:
    return escape(item[0]), escape(item[1])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["<table>"]
    if head:
        lines.append("<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>")
    for first, *rest in rows:
        cells = "".join(f"<td class=number>{cell}</td>" for cell in rest)
        lines.append(f"<tr><td>{first}</td>{cells}</tr>")
    return "\n".join([*lines, "</table>"])
