"""The report as one page of HTML, with nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from torchyard_export._finding import Finding
from torchyard_export._report.report import NO_DIMENSION, Report

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { border-bottom: 1px solid #8886; padding: .3rem .8rem; text-align: left }
td, th { white-space: nowrap }
td:first-child, th:first-child { padding-left: 0 }
.numbers td + td, .numbers th + th { text-align: right; font-variant-numeric: tabular-nums }
.passed { color: light-dark(#16602c, #6fcf8f) } .refused { color: light-dark(#a01c1c, #ff8a80) }
.bar { background: #8883; display: inline-block; height: .7rem; width: 8rem }
.bar i { background: #46a; display: block; height: 100% }
pre { background: #8882; overflow-x: auto; padding: .6rem; white-space: pre-wrap }
pre { overflow-wrap: anywhere }
"""
_STAGES = """
<p>Each form of the program was called with the sizes below. A result may be four times as far from
the exact one as the model's own is: that distance is its bound, and 1 of the bound is the most that
passes.</p>
"""


def html(report: Report) -> str:
    """Return the page."""
    verdict = "passed" if report.passed else "refused"
    parts = [
        f"<h1>{escape(report.model)}: <span class={verdict}>{verdict}</span></h1>",
        f"<p>Measured against {escape(report.ruler)}.</p>",
        "<h2>Dimensions</h2>",
        f"<p>{escape(', '.join(report.dimensions) or NO_DIMENSION)}</p>",
        "<h2>Stages</h2>",
        _STAGES,
        _table(
            ("stage", "cases", "wrong", "from float64", "of the bound", "", "seconds"),
            (
                (
                    escape(stage.name) if stage.passed else f"<b>{escape(stage.name)}</b>",
                    str(stage.cases),
                    str(stage.wrong),
                    f"{stage.error:.2e}",
                    f"{stage.ratio:.2f}",
                    f"<span class=bar><i style='width:{min(stage.ratio, 1):.0%}'></i></span>",
                    f"{stage.seconds:.2f}",
                )
                for stage in report.stages
            ),
            numbers=True,
        ),
    ]
    findings = [finding for stage in report.stages for finding in stage.findings]
    for title, found in (("Refused", findings), ("Accepted", list(report.accepted))):
        parts += _findings(title, found)
    if report.notes:
        parts.append("<h2>Notes</h2><ul>")
        parts += [f"<li>{escape(note)}</li>" for note in report.notes]
        parts.append("</ul>")
    if report.quantization is not None:
        parts.append("<h2>Quantization</h2><ul>")
        parts += [f"<li>{escape(line)}</li>" for line in report.quantization.lines()]
        parts.append("</ul>")
    names = sorted({name for sizes in report.sizes for name in sizes})
    if names:
        rows = (
            [str(number), *(str(sizes.get(name, "")) for name in names)]
            for number, sizes in enumerate(report.sizes, 1)
        )
        head = ["call", *map(escape, names)]
        parts += ["<h2>Calls that were compared</h2>", _table(head, rows, numbers=True)]
    parts += ["<h2>Versions</h2>", _table((), map(_pair, report.versions.items()))]
    return _page(report.model, parts)


def refusal_html(model: str, findings: Sequence[Finding]) -> str:
    """Return the page of an export that made no artifact."""
    head = f"<h1>{escape(model)}: <span class=refused>refused</span></h1>"
    return _page(model, [head, *_findings("Findings", findings)])


def _findings(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    return [f"<h2>{title}</h2>", *(f"<pre>{escape(found.render())}</pre>" for found in findings)]


def _page(title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style>\n{body}\n</html>\n"
    )


def _pair(item: tuple[str, str]) -> tuple[str, str]:
    return escape(item[0]), escape(item[1])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    kind = " class=numbers" if numbers else ""
    lines = [f"<div class=scroll><table{kind}>"]
    if head:
        lines.append("<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>")
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table></div>"])
