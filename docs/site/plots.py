"""Pictures of the benchmarks' runs that docs/measurements/runs keeps, and their page."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

__all__ = ["RUNS", "Bar", "bars_of", "plots_page"]

RUNS: Final = Path(__file__).parents[1] / "measurements" / "runs"

_HEAD: Final = """\
# Benchmark plots

Each picture is drawn from the file that a run of [the benchmarks](../benchmarks.md) left, and says
on which machine, when, and by which command. A bar is how many times as fast a call is as stock
torch's fastest way to the same result in the same run: beyond 1 it is faster. Where the run
measured the machine's own limit, that has a bar too.
"""
_COLOURS: Final = ("#1f4e8c", "#c8553d", "#5b8c5a", "#8a6d9e", "#b08900", "#5f6b73")
_TORCHYARD: Final = "torchyard"


@dataclass(frozen=True, slots=True)
class Bar:
    """One ratio of a run.

    Attributes:
        case: what was called.
        who: what computed it, or the limit that it is held against.
        ratio: how many times as fast as stock torch's fastest way.
    """

    case: str
    who: str
    ratio: float


def bars_of(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """Return the ratios of a suite's rows, in their order.

    A suite of attention has a row for each contestant, ours first; another one has ratios as such.
    """
    found = []
    for case, of_case in groupby(rows, key=lambda row: row["case"]):
        group = list(of_case)
        if others := [row["times_ours"] for row in group[1:] if "times_ours" in row]:
            found.append(Bar(case, _TORCHYARD, min(others)))
        for row in group:
            if (
                str(row.get("quantity", "")).startswith("times torch's")
                and row["value"] is not None
            ):
                found.append(Bar(case, row["who"], row["value"]))
    return found


def plots_page(folder: Path, runs: Path = RUNS) -> str:
    """Write the pictures to a folder, and return the page, which is next to it.

    Raises:
        ValueError: there is no run, or one whose figures mean nothing.
    """
    paths = sorted(runs.glob("*.json"))
    if not paths:
        raise ValueError(f"plots: expected runs of the benchmarks in {runs}, got none")
    folder.mkdir(parents=True, exist_ok=True)
    text = [_HEAD]
    for path in paths:
        data = json.loads(path.read_text(encoding="utf-8"))
        machine = data["machine"]
        if "--quick" in machine["command"].split():
            raise ValueError(f"plots: {path.name}: expected a whole run, got one with --quick")
        for suite, rows in groupby(data["rows"], key=lambda row: row["suite"]):
            bars = bars_of(list(rows))
            if not bars:
                raise ValueError(f"plots: {path.name}: {suite}: expected ratios, got none")
            picture = folder / f"{suite}.svg"
            picture.write_text(_drawn(suite, bars), encoding="utf-8")
            text += _section(suite, bars, f"{folder.name}/{picture.name}", machine)
    return "\n".join(text)


def _section(
    suite: str, bars: Sequence[Bar], picture: str, machine: Mapping[str, Any]
) -> list[str]:
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads"
    what = f"torch {machine['torch']}, torchyard {machine['torchyard']} at {machine['commit'][:8]}"
    ratios = [bar.ratio for bar in bars]
    alt = f"{suite}: {len(bars)} bars, from {min(ratios):.2f} to {max(ratios):.2f} times torch"
    return [
        f"## {suite}",
        "",
        f"![{alt}]({picture})",
        "",
        f"{where}; {what}; {machine['date']}.",
        "",
        "```console",
        f"$ {machine['command']}",
        "```",
        "",
        *_table(bars),
    ]


def _table(bars: Sequence[Bar]) -> Iterator[str]:
    """Yield the numbers of a picture, for those who do not see it."""
    yield "```{raw} html"
    yield '<details><summary>The numbers</summary><div tabindex="0"><table>'
    yield '<thead><tr><th scope="col">case</th><th scope="col">by</th>'
    yield '<th scope="col">times torch</th></tr></thead><tbody>'
    for bar in bars:
        cells = (bar.case, bar.who, f"{bar.ratio:.2f}")
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</tbody></table></div></details>"
    yield "```"
    yield ""


def _drawn(suite: str, bars: Sequence[Bar]) -> str:
    """Return a picture as SVG, the same bytes for the same bars."""
    whose = list(dict.fromkeys(bar.who for bar in bars))
    cases = list(dict.fromkeys(bar.case for bar in bars))
    colours = dict(zip(whose, _COLOURS * len(whose), strict=False))
    figure = Figure(figsize=(8, 1.2 + 0.2 * (len(bars) + len(cases) / 2)), layout="constrained")
    axes = figure.add_subplot()
    place, places = 0.0, []
    for case in cases:
        of_case = [bar for bar in bars if bar.case == case]
        places.append(place + (len(of_case) - 1) / 2)
        for bar in of_case:
            axes.barh(place, bar.ratio - 1, left=1, color=colours[bar.who])
            axes.text(max(bar.ratio, 1), place, f" {bar.ratio:.2f}", va="center", fontsize=7)
            place += 1
        place += 0.5
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="both", labelsize=7)
    axes.set_yticks(places, cases, fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1.0, color="#333333", linewidth=1)
    axes.set_xlabel("times as fast as stock torch's fastest way", fontsize=8)
    axes.margins(x=0.08, y=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [mpl.patches.Patch(color=colours[who], label=who) for who in whose]
    axes.legend(handles=handles, fontsize=7, loc="lower right", framealpha=0.9)
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": suite, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, facecolor="white")
    return out.getvalue()
