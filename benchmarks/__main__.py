"""``nox -s bench [-- SUITE or CASE ...] [--quick] [--json FILE] [--plots FOLDER]``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console
from rich.progress import Progress

import torchyard
from benchmarks.attention.cold import measure_cold
from benchmarks.attention.context_parallel import measure_context_parallel
from benchmarks.attention.memory import measure_memory
from benchmarks.attention.scaling import measure_scaling
from benchmarks.attention.suites import SUITES
from benchmarks.groups.collectives import measure_collectives
from benchmarks.kernels.foreach import measure_foreach
from benchmarks.kernels.graphs import measure_graphs
from benchmarks.kernels.linear import measure_linear
from benchmarks.kernels.linear_functions import measure_functions
from benchmarks.kernels.recurrent import measure_recurrent
from benchmarks.kernels.topk import measure_topk
from benchmarks.measuring.cases import Case
from benchmarks.measuring.limits import Limits, Probe
from benchmarks.measuring.measure import Effort, Row, WrongResultError, measure
from benchmarks.overhead.call_files import main as count_files
from benchmarks.overhead.calls import measure_calls
from benchmarks.overhead.native_files import main as count_native_files
from benchmarks.reporting.plot import draw_short
from benchmarks.reporting.report import (
    bars_table,
    brief_table,
    findings_table,
    limits_text,
    rows_table,
    write_json,
)

__all__: list[str] = []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=sys.modules[__name__].__doc__)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="name",
        help=f"suites ({', '.join((*SUITES, *_PROBES))}), cases, or how cases' names begin; "
        "everything by default",
    )
    parser.add_argument("--quick", action="store_true", help="short sequences, few rounds")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each contestant")
    parser.add_argument("--seconds", type=float, default=6.0, help="of timing per case, about")
    parser.add_argument("--threads", type=int, default=0, help="threads; 0: as torch would use")
    parser.add_argument("--demand", help="the implementation that ours must be")
    parser.add_argument("--json", type=Path, help="write the rows and the machine there")
    parser.add_argument("--plots", type=Path, help="draw into this folder")
    return parser.parse_args()


def _chosen(words: list[str]) -> dict[str, tuple[Case, ...]]:
    """Return the cases to run by suite; a suite that has no cases is there with none.

    Raises:
        ValueError: nothing has such a name.
    """
    found: dict[str, tuple[Case, ...]] = {}
    for word in words or [*SUITES, *_PROBES]:
        if word in _PROBES:
            found[word] = ()
            continue
        if word in SUITES:
            found[word] = SUITES[word]
            continue
        matches = {
            suite: tuple(case for case in cases if f"{case.name} ".startswith(f"{word} "))
            for suite, cases in SUITES.items()
        }
        if not any(matches.values()):
            raise ValueError(
                f"no suite and no case begins with {word!r}; suites: "
                f"{', '.join((*SUITES, *_PROBES))}; cases: "
                f"{', '.join(case.name for cases in SUITES.values() for case in cases)}"
            )
        found |= {suite: cases for suite, cases in matches.items() if cases}
    return found


class _Run:
    """One run: its console, its machine, and what it found."""

    def __init__(self, arguments: argparse.Namespace, probe: Probe, progress: Progress) -> None:
        self.arguments = arguments
        self.probe = probe
        self.progress = progress
        # A log or a file has no width of its own.
        self.console = Console(width=None if sys.stdout.isatty() else 150)
        self.limits: Limits = probe.limits(torch.get_num_threads())
        rounds = 3 if arguments.quick else arguments.rounds
        self.effort = Effort(rounds, 1.0 if arguments.quick else arguments.seconds)
        self.found: dict[str, list[Any]] = {}
        self.wrong = 0

    def side_by_side(self, suite: str, cases: tuple[Case, ...]) -> None:
        """Time every contestant of the cases."""
        task = self.progress.add_task(suite, total=len(cases))
        measured: list[tuple[Case, list[Row]]] = []
        for case in cases:
            self.progress.update(task, description=f"{suite}: {case.name}", refresh=True)
            shorten = self.arguments.quick and case.shape[4] > 256
            sized = case.shortened(8) if shorten else case
            try:
                rows = measure(
                    sized,
                    self.limits,
                    self.probe,
                    self.effort,
                    demand=self.arguments.demand,
                    drop=self._drop,
                )
            except (WrongResultError, torchyard.UnsupportedError) as error:
                self._refuse(case.name, error)
                continue
            finally:
                self.progress.advance(task)
            measured.append((case, rows))
            if suite != "short":
                self.console.print(rows_table(case, rows))
        self.progress.remove_task(task)
        if suite == "short":
            self.console.print(brief_table(measured))
        if any(case.bars for case, _ in measured):
            self.console.print(bars_table(measured))
        if suite == "short" and self.arguments.plots is not None:
            draw_short(measured, self.arguments.plots)
        self.found[suite] = [row for _, rows in measured for row in rows]

    def probes(self, suite: str) -> None:
        """Measure what needs processes or threads of its own."""
        task = self.progress.add_task(suite, total=None)
        given: dict[str, Any] = {
            "quick": self.arguments.quick,
            "progress": lambda text: self.progress.update(
                task, description=f"{suite}: {text}", refresh=True
            ),
        }
        try:
            found = _PROBES[suite](self, **given)
        except (WrongResultError, torchyard.UnsupportedError) as error:
            self._refuse(suite, error)
            found = []
        self.progress.remove_task(task)
        if found:
            self.console.print(findings_table(suite, found))
        self.found[suite] = found

    def _drop(self, error: WrongResultError) -> None:
        self.console.print(f"a rival is not timed: {error}", style="yellow")

    def _refuse(self, what: str, error: Exception) -> None:
        self.wrong += 1
        self.console.print(f"{what}: not timed: {error}", style="bold red")


# What needs processes, threads or a way to time of its own.
_PROBES: Final[dict[str, Callable[..., list[Any]]]] = {
    "scaling": lambda run, **given: measure_scaling(
        run.effort, demand=run.arguments.demand, **given
    ),
    "memory": lambda run, **given: measure_memory(**given),
    "calls": lambda run, **given: measure_calls(**given),
    "cold": lambda run, **given: measure_cold(plots=run.arguments.plots, **given),
    "collectives": lambda run, **given: measure_collectives(**given),
    "context-parallel": lambda run, **given: measure_context_parallel(**given),
    "foreach": lambda run, **given: measure_foreach(**given),
    "graphs": lambda run, **given: measure_graphs(**given),
    "linear": lambda run, **given: measure_linear(run.limits, run.probe, run.effort, **given),
    "linear-functions": lambda run, **given: measure_functions(run.effort, **given),
    "recurrent": lambda run, **given: measure_recurrent(**given),
    "topk": lambda run, **given: measure_topk(**given),
}


def _main() -> int:
    arguments = _arguments()
    try:
        chosen = _chosen(arguments.words)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.plots is not None:
        arguments.plots.mkdir(parents=True, exist_ok=True)
    # A bar that draws itself would do so on a processor that a contestant's threads need.
    drawn = Progress(console=Console(stderr=True), transient=True, auto_refresh=False)
    with Probe() as probe, drawn as progress:
        run = _Run(arguments, probe, progress)
        run.console.print(limits_text(run.limits))
        for suite, cases in chosen.items():
            if cases:
                run.side_by_side(suite, cases)
            else:
                run.probes(suite)
    if arguments.json is not None:
        known = {case.name: case for cases in SUITES.values() for case in cases}
        write_json(arguments.json, run.limits, run.found, known)
    return 1 if run.wrong else 0


if __name__ == "__main__":
    # Counts, which need no measuring.
    counts = {"call-files": count_files, "native-files": count_native_files}
    count = counts.get(sys.argv[1] if len(sys.argv) > 1 else "")
    sys.exit(_main() if count is None else count(sys.argv[2:]))
