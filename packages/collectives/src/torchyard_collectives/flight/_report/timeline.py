"""The report as one HTML file that loads nothing: verdict, calls by number, calls by time."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from torchyard_collectives.flight._analysis.findings import Finding, Report
from torchyard_collectives.flight._analysis.laws import call_of
from torchyard_collectives.flight._analysis.views import GroupView, group_views
from torchyard_collectives.flight._history import Record, State

__all__ = ["render_html"]

_COLUMNS: Final = 24
_BARS: Final = 400
_WIDTH: Final = 1100
_LANE: Final = 26
_LEFT: Final = 90
_COLORS: Final = {
    State.COMPLETED: "#3d8b5f",
    State.STARTED: "#d9902f",
    State.ENTERED: "#d9902f",
    State.FAILED: "#c0392b",
}
_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;
color:#1d2733;background:#fff}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.outcome{display:inline-block;padding:.1rem .6rem;border-radius:1rem;color:#fff}
.fault{background:#c0392b}.healthy{background:#3d8b5f}.inconclusive{background:#7a8694}
.finding{border-left:4px solid #c0392b;background:#fbf2f1;padding:.6rem 1rem;margin:.8rem 0}
.finding+.finding{border-color:#d9902f;background:#fdf7ee}
table{border-collapse:collapse;margin:.4rem 0}td,th{padding:.2rem .6rem;text-align:left;
border-bottom:1px solid #e3e7eb;vertical-align:top;overflow-wrap:anywhere}
code,.cell,.mono{font-family:ui-monospace,monospace;font-size:12px}
.scroll{overflow-x:auto}.cell{white-space:nowrap;color:#fff;border:2px solid #fff;
border-radius:6px;max-width:10rem;overflow:hidden;text-overflow:ellipsis}
.cell.odd{border-color:#111}.cell.none{color:#7a8694;background:#eef1f4}
.key span{display:inline-block;width:.9rem;height:.9rem;border-radius:3px;vertical-align:-2px;
margin:0 .3rem 0 1rem}
svg text{font:12px system-ui,sans-serif;fill:#1d2733}small{color:#5b6773}
"""


def render_html(report: Report) -> str:
    """Return the page. Every text from a dump is escaped, and nothing in it runs."""
    first = report.findings[0] if report.findings else None
    title = str(first.kind) if first else str(report.outcome)
    views = group_views(report.histories)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        (
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        ),
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        (
            f"<h1>{escape(title)} <small class='outcome {escape(report.outcome)}'>"
            f"{escape(report.outcome)}</small></h1>"
        ),
        *map(_finding, report.findings),
        _problems(report),
        _ranks(report),
        (
            '<p class=key>by state:<span style="background:#3d8b5f"></span>completed'
            '<span style="background:#d9902f"></span>not over'
            '<span style="background:#c0392b"></span>failed'
            '<span style="background:#eef1f4"></span>not made, or not kept '
            "(a dark frame: another call than most ranks make)</p>"
        ),
    ]
    for view in views:
        parts += _grid(view, report)
    parts += _chart(report)
    return "\n".join(parts) + "\n"


def _finding(found: Finding) -> str:
    rows = "".join(
        f"<tr><td>rank {call.rank}<td><code>{escape(call.call)}</code><td>{escape(call.state)}"
        f"<td class=mono>{'<br>'.join(escape(str(frame)) for frame in call.site)}"
        for call in found.calls
    )
    table = f"<table><tr><th>rank<th>call<th>state<th>call site{rows}</table>" if rows else ""
    notes = "".join(f"<li>{escape(note)}" for note in found.notes)
    doubt = "" if found.certain else " <small>(likely: the records allow another reading)</small>"
    return (
        f"<div class=finding><b>{escape(found.kind)}</b>, rank "
        f"{', '.join(map(str, found.ranks))}{doubt}<br>{escape(found.text)}{table}"
        f"<ul>{notes}</ul></div>"
    )


def _problems(report: Report) -> str:
    if not report.problems:
        return ""
    rows = "".join(f"<li>{escape(problem)}" for problem in report.problems)
    return f"<h2>What limits this</h2><ul>{rows}</ul>"


def _ranks(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{rank}<td>{escape(history.host)}<td>{history.pid}<td>{escape(history.reason)}"
        f"<td>{escape(history.ending.kind)} {escape(history.ending.text)}"
        f"<td class=mono>{escape(str(history.stack[0])) if history.stack else ''}"
        for rank, history in sorted(report.histories.items())
    )
    return (
        "<h2>Ranks</h2><div class=scroll><table><tr><th>rank<th>host<th>process<th>dumped because"
        f"<th>ended<th>main thread{rows}</table></div>"
    )


def _grid(view: GroupView, report: Report) -> Iterator[str]:
    """Yield the calls of a group by their number, the last ones or those around the fault."""
    sequences = view.sequences()
    if not sequences:
        return
    fault = next(
        (f.sequence for f in report.findings if f.group == view.name and f.sequence is not None),
        sequences[-1],
    )
    last = min(max(fault + _COLUMNS // 3, sequences[0] + _COLUMNS), sequences[-1])
    shown = [number for number in sequences if last - _COLUMNS < number <= last]
    yield f"<h2>Group {escape(view.name)}: calls by number</h2><div class=scroll><table><tr><th>"
    yield "".join(f"<th>{number}" for number in shown)
    usual = {number: _usual(view, number) for number in shown}
    for rank in view.ranks:
        yield f"<tr><th>rank {rank}"
        for number in shown:
            call = view.calls.get(rank, {}).get(number)
            if call is None:
                yield "<td class='cell none'>-"
                continue
            odd = " odd" if call_of(call) != usual[number] else ""
            site = str(call.site[0]) if call.site else ""
            hint = f"{call.describe()}, {call.state}, {site}"
            yield (
                f"<td class='cell{odd}' style='background:{_COLORS[call.state]}' "
                f"title='{escape(hint)}'>{escape(call.op)}"
            )
    yield "</table></div>"


def _usual(view: GroupView, number: int) -> object:
    calls = [call_of(call) for call in view.at(number).values()]
    return max(calls, key=calls.count)


def _chart(report: Report) -> Iterator[str]:
    """Yield an SVG of the last calls by time, one lane per rank."""
    calls: list[tuple[int, int, int, Record]] = []
    for rank, history in report.histories.items():
        for record in history.records:
            start = report.clocks.time(rank, record.entered)
            end = record.completed if record.completed is not None else history.dumped
            stop = report.clocks.time(rank, end) if end is not None else start
            calls.append((start, max(stop, start), rank, record))
    calls = sorted(calls, key=lambda call: call[0])[-_BARS:]
    if not calls:
        return
    ranks = sorted(report.histories)
    low, high = min(call[0] for call in calls), max(call[1] for call in calls)
    scale = (_WIDTH - _LEFT - 10) / max(high - low, 1)
    height = _LANE * (len(ranks) + 1) + 10
    yield (
        f"<h2>The last {len(calls)} calls by time</h2><div class=scroll>"
        f"<svg width={_WIDTH} height={height} role=img>"
    )
    for number in range(5):
        place = _LEFT + (_WIDTH - _LEFT - 10) * number / 4
        seconds = (high - low) * number / 4e9
        anchor = "end" if number == 4 else "middle"
        yield (
            f"<line x1={place:.1f} x2={place:.1f} y1=0 y2={height - _LANE} stroke='#e3e7eb'/>"
            f"<text x={place:.1f} y={height - 8} text-anchor={anchor}>{seconds:.3f} s</text>"
        )
    for lane, rank in enumerate(ranks):
        yield f"<text x=0 y={lane * _LANE + 18}>rank {rank}</text>"
    for start, stop, rank, record in calls:
        place = _LEFT + (start - low) * scale
        width = max((stop - start) * scale, 2)
        lane = ranks.index(rank) * _LANE + 4
        hint = (
            f"{record.describe()}, call {record.sequence} of group {record.group}, {record.state}, "
            f"{(stop - start) / 1e6:.3f} ms"
        )
        yield (
            f"<rect x={place:.1f} y={lane} width={width:.1f} height={_LANE - 8} rx=2 "
            f"fill='{_COLORS[record.state]}' fill-opacity=.85><title>{escape(hint)}</title></rect>"
        )
    yield "</svg></div>"
