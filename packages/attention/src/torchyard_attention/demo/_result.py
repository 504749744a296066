"""What a run found out, and whether that is what it should be."""

from __future__ import annotations

import dataclasses
import math
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchyard import Decision, __version__
from torchyard_attention.demo._comparison import Comparison
from torchyard_attention.demo._device import Machine
from torchyard_attention.demo._settings import Settings
from torchyard_attention.demo._text import Text
from torchyard_attention.demo._training import Curve


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Everything that a run found out.

    Attributes:
        settings, machine, text: what it ran with.
        parameters: how many the model has.
        curve: the training.
        unigram: the held-out loss of knowing only how frequent each byte is.
        written: the text that continues the prompt.
        pace: bytes written per second.
        comparison: ours beside stock torch; None where there was nothing to compare with.
        decisions: which implementation computed what, and why.
        table, plot: the curve's files; no plot without matplotlib.
        problem: why there is no comparison; else empty.
        seconds: of the whole run.
    """

    settings: Settings
    machine: Machine
    text: Text
    parameters: int
    curve: Curve
    unigram: float
    written: str
    pace: float
    comparison: Comparison | None
    decisions: dict[str, Decision]
    table: Path
    plot: Path | None
    problem: str
    seconds: float

    def failures(self) -> list[str]:
        """Return what went wrong, a sentence each; empty where all went right."""
        found = []
        first, last = self.curve.held_out[0][1], self.curve.held_out[-1][1]
        if not (math.isfinite(last) and last < first):
            found.append(f"the held-out loss did not fall: from {first:.3f} to {last:.3f}")
        begun, ended = self.curve.train[0][1], self.curve.smoothed(-0.1)
        if not (math.isfinite(ended) and ended < begun):
            found.append(f"the training loss did not fall: from {begun:.3f} to {ended:.3f}")
        if self.comparison is None:
            found.append(f"nothing was compared: {self.problem}")
        elif not self.comparison.parity.holds:
            found.append("ours and stock torch do not compute the same")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON-ready data; times in seconds, losses in nats per byte."""
        size, curve = self.settings.size, self.curve
        step_seconds = sum(curve.step_seconds) / len(curve.step_seconds)
        return {
            "schema": 1,
            "ok": not self.failures(),
            "failures": self.failures(),
            "seconds": self.seconds,
            "machine": {
                "system": platform.system(),
                "processor": platform.machine(),
                "device": str(self.settings.device),
                "text": self.machine.text,
                "load_at_start": self.machine.load,
                "threads": torch.get_num_threads(),
            },
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "torchyard": __version__,
            },
            "dtype": str(self.settings.dtype).removeprefix("torch."),
            "seed": self.settings.seed,
            "text": {
                "source": self.text.source,
                "files": self.text.files,
                "train_bytes": len(self.text.train),
                "held_out_bytes": len(self.text.held_out),
            },
            "model": {**dataclasses.asdict(size), "parameters": self.parameters},
            "training": {
                "steps": len(curve.train),
                "seconds": curve.seconds,
                "bytes_per_second": size.batch * size.length / step_seconds,
                "loss_start": curve.train[0][1],
                "loss_end": curve.smoothed(-0.1),
                "held_out_start": curve.held_out[0][1],
                "held_out_end": curve.held_out[-1][1],
                "held_out_of_byte_frequencies": self.unigram,
            },
            "generation": {
                "prompt": self.settings.prompt,
                "text": self.written,
                "bytes_per_second": self.pace,
            },
            "comparison": _comparison(self.comparison),
            "decisions": {part: decision.to_json() for part, decision in self.decisions.items()},
            "files": {
                "curve": str(self.table),
                "plot": None if self.plot is None else str(self.plot),
            },
        }


def _comparison(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    data = dataclasses.asdict(comparison)
    for part in ("training", "generation"):
        ratio, least, greatest = getattr(comparison, part).ratio()
        data[part].update(stock_over_ours=ratio, least=least, greatest=greatest)
    data["parity"]["holds"] = comparison.parity.holds
    return data
