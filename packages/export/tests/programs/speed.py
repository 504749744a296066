"""Run time of exported recurrent layers beside eager, and what export costs beside stock torch.

``python -m packages.export.tests.programs.speed`` prints ratios: medians of interleaved rounds in
one process. A busy machine's figures mean nothing. ``--compiled`` adds AOTInductor; ``--kinds GRU
--lengths 16 --stock 0`` takes a part.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from torchyard_export import export
from torchyard_export._audit.parity import Runner

LENGTHS = (16, 128, 1000)
BATCH, WIDTH, ROUNDS = 4, 64, 15


class Layer(nn.Module):
    """A recurrent layer and a classifier."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        made: nn.RNNBase = getattr(nn, kind)(WIDTH, WIDTH, 2, batch_first=True)
        self.rnn = made
        self.out = nn.Linear(WIDTH, 8)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.rnn(x)[0])
        return scores


def interleaved(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median seconds of each, the rounds of all taken in turn."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs.items())
    for turn in range(ROUNDS + 2):
        # Who comes behind whom differs: threads that still wait for work slow the next one down.
        for name, run in order[turn % len(order) :] + order[: turn % len(order)]:
            start = time.perf_counter()
            run()
            if turn >= 2:
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the seconds that it took."""
    start = time.perf_counter()
    found = run()
    return found, time.perf_counter() - start


def _bound(runner: Runner, x: Tensor) -> Callable[[], Any]:
    return lambda: runner([x])


def _stock(model: nn.Module, length: int, *, compiled: bool) -> tuple[float, float, int]:
    x = torch.randn(BATCH, length, WIDTH)
    with warnings.catch_warnings(), torch.no_grad(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        program, seconds = timed(lambda: torch.export.export(model, (x,)).run_decompositions())
        path = Path(folder, "model.pt2")
        torch.export.save(program, str(path))
        size = path.stat().st_size
        if not compiled:
            return seconds, 0.0, size
        build = torch._inductor.aoti_compile_and_package
        _, more = timed(lambda: build(program, package_path=str(Path(folder, "aoti.pt2"))))
    return seconds, more, size


@torch.no_grad()
def main(words: list[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default="LSTM,GRU,RNN")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="none by 0")
    parser.add_argument("--stock", default="16,128", help="lengths that stock torch exports; or 0")
    parser.add_argument("--targets", default="pt2,aten,onnx")
    parser.add_argument("--compiled", action="store_true", help="AOTInductor too; stock's at 16")
    given = parser.parse_args(words)
    lengths, stocks = (
        [int(word) for word in text.split(",") if word != "0"]
        for text in (given.lengths, given.stock)
    )
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    targets = given.targets.split(",") + ["aotinductor_native"] * given.compiled
    for kind in given.kinds.split(","):
        torch.manual_seed(0)
        model = Layer(kind).eval()
        axes = {"x": {0: "batch:1..8", 1: "time:1..1000"}}
        example = (torch.randn(BATCH, 16, WIDTH),)
        made = export(model, example, dynamic=axes, targets=targets)
        steps = {stage.name: stage.seconds for stage in made.report.stages}
        print(
            f"{kind}: one artifact for every length, {len(made.to_bytes())} bytes "
            "with golden calls; seconds of",
            ", ".join(f"{name} {seconds:.2f}" for name, seconds in steps.items()),
        )
        for length in lengths:
            x = torch.randn(BATCH, length, WIDTH)
            runs: dict[str, Callable[[], Any]] = {"eager": lambda m=model, x=x: m(x)}
            runs |= {name: _bound(made.runner(name), x) for name in targets}
            found = interleaved(runs)
            ratios = ", ".join(
                f"{n} {s / found['eager']:.2f}" for n, s in found.items() if n != "eager"
            )
            print(f"  T={length}: of eager's time: {ratios}", flush=True)
        # Written out step by step, 1000 of them take stock torch minutes.
        for length in stocks:
            seconds, more, size = _stock(model, length, compiled=given.compiled and length <= 16)
            line = f"  stock, T={length} alone: {seconds:.2f} s, {size} bytes"
            line += f"; AOTInductor {more:.2f} s" if more else ""
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
