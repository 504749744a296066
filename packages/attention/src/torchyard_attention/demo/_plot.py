"""The loss curve as a table, and as a picture where matplotlib is installed."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from torchyard_attention.demo._training import Curve

INSTALL: Final = 'pip install "torchyard-attention[demo]"'
_PALE, _DARK, _ACCENT, _GREY = "#9db8d9", "#1f4e8c", "#c8553d", "#6b6b6b"


def save_table(curve: Curve, folder: Path) -> Path:
    """Write loss.csv: a row per step, losses in nats per byte."""
    path = folder / "loss.csv"
    held_out = dict(curve.held_out)
    train = dict(curve.train)
    seconds = dict(zip(train, curve.step_seconds, strict=True))
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["step", "train_nats_per_byte", "held_out_nats_per_byte", "step_seconds"])
        for step in sorted(train.keys() | held_out.keys()):
            values = [table.get(step, "") for table in (train, held_out, seconds)]
            rows.writerow([step, *values])
    return path


def save_plot(curve: Curve, unigram: float, headline: str, below: str, folder: Path) -> Path | None:
    """Write loss.png; return None where matplotlib is not installed.

    Args:
        curve: what to draw.
        unigram: the loss of knowing only how frequent each byte is.
        headline, below: the title, and a line below it.
        folder: where to write.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        return None
    figure = Figure(figsize=(9, 5.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw(axes, curve, unigram)
    figure.suptitle(textwrap.fill(headline, 70), x=0.012, ha="left", fontsize=13, fontweight="bold")
    axes.set_title(textwrap.fill(below, 130), loc="left", fontsize=8.5, color=_GREY)
    path = folder / "loss.png"
    figure.savefig(path)
    return path


def _draw(axes: Any, curve: Curve, unigram: float) -> None:
    steps, losses = zip(*curve.train, strict=True)
    axes.plot(steps, losses, color=_PALE, linewidth=0.9, label="training, each batch")
    smooth = _smoothed(losses)
    axes.plot(steps, smooth, color=_DARK, linewidth=2.0, label="training, running mean")
    places, judged = zip(*curve.held_out, strict=True)
    axes.plot(places, judged, "o-", color=_ACCENT, linewidth=1.4, markersize=5, label="held out")
    axes.axhline(unigram, color=_GREY, linewidth=1.0, linestyle=(0, (5, 4)))
    axes.annotate(
        f"byte frequencies alone: {unigram:.2f}",
        (1.0, unigram),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        color=_GREY,
        fontsize=8.5,
    )
    axes.annotate(
        f"{judged[-1]:.2f}",
        (places[-1], judged[-1]),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
        color=_ACCENT,
        fontsize=9.5,
        fontweight="bold",
    )
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss (nats per byte)")
    axes.set_xlim(0, max(places) * 1.03)
    shown = [*losses, *judged, unigram]
    axes.set_ylim(min(shown) - 0.35, max(shown) + 0.15)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.0, 0.98), fontsize=9)


def _smoothed(losses: Sequence[float]) -> list[float]:
    """Return a running mean over a twentieth of the steps, each step in the middle of its own."""
    reach = max(1, len(losses) // 40)
    sums = [0.0]
    for loss in losses:
        sums.append(sums[-1] + loss)
    smooth = []
    for index in range(len(losses)):
        first, last = max(0, index - reach), min(len(losses), index + reach + 1)
        smooth.append((sums[last] - sums[first]) / (last - first))
    return smooth
