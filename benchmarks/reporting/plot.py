"""The pictures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.measuring.cases import Case
from benchmarks.measuring.measure import Row

__all__ = ["draw_calls", "draw_short"]

_OURS: Final = "#1f4e8c"
_THEIRS: Final = "#c8553d"


def draw_short(measured: Sequence[tuple[Case, list[Row]]], folder: Path) -> None:
    """Draw how many times as long the best other contestant takes, by length: short.png."""
    figure, axes = _figure("the best of torch's time over ours, by length")
    lines: dict[str, list[tuple[int, float]]] = {}
    for case, rows in measured:
        batch, length = case.shape[0], case.shape[3]
        mask = "causal" if case.causal else "full"
        name = f"{mask}, batch {batch}, {str(case.dtype)[6:]}"
        ratio = min(row.times_ours for row in rows[1:])
        lines.setdefault(name, []).append((length, ratio))
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=3, label=name)
    axes.axhline(1.0, color="#6b6b6b", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("length")
    axes.legend(fontsize=7)
    figure.savefig(folder / "short.png")


def draw_calls(many: dict[str, Any], stock: dict[str, Any], folder: Path) -> None:
    """Draw first and later calls of functions in a row, in milliseconds: cold.png."""
    figure, axes = _figure("a new function, length and captured tensors each: milliseconds")
    for found, colour, who in ((many, _OURS, "torchyard"), (stock, _THEIRS, "compiled flex")):
        for key, style in (("first", "o"), ("later", ".")):
            times = [1e3 * seconds for seconds in found[key]]
            axes.plot(times, style, color=colour, markersize=4, label=f"{who}, {key} call")
    axes.set_yscale("log")
    axes.set_xlabel("number of the function")
    axes.legend(fontsize=7)
    figure.savefig(folder / "cold.png")


def _figure(title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8, 4.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    return figure, axes
