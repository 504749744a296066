"""``python -m benchmarks.language [CONTESTANT ...] [--layers N] [--rounds N] [--openvino PYTHON]``

A Llama-shaped model of a billion random parameters reads 512 tokens, and decodes 64 behind 512 and
behind 4096: ours beside stock transformers, eager and compiled, and beside llama.cpp and OpenVINO
where they are installed. Each contestant is a process of its own, which waits while another is
timed; those of as many bits take turns, and what reads from memory is timed between two probes of
the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.language import ggml
from benchmarks.language.shape import STEPS
from benchmarks.measuring.limits import Limits, Probe

__all__ = ["BARS", "CONTESTANTS", "Row", "main"]

# Name -> (kind, weights, activation).
CONTESTANTS: Final[dict[str, tuple[str, str, str]]] = {
    "stock bfloat16": ("stock", "bfloat16", "none"),
    "stock float16": ("stock", "float16", "none"),
    "compiled bfloat16": ("compiled", "bfloat16", "none"),
    "torchyard bfloat16": ("torchyard", "bfloat16", "none"),
    "torchyard float16": ("torchyard", "float16", "none"),
    "torchyard int8": ("torchyard", "int8", "none"),
    "torchyard int8 x int8": ("torchyard", "int8", "int8"),
    "torchyard int4": ("torchyard", "int4", "none"),
    "torchyard int4 x int8": ("torchyard", "int4", "int8"),
    "ggml F16": ("ggml", "F16", ""),
    "ggml BF16": ("ggml", "BF16", ""),
    "ggml Q8_0": ("ggml", "Q8_0", ""),
    "ggml Q4_0": ("ggml", "Q4_0", ""),
    "openvino BF16": ("openvino", "BF16", ""),
    "openvino INT8": ("openvino", "INT8", ""),
    "openvino INT4": ("openvino", "INT4", ""),
}
# (task, ours, rival, at least so many times as fast).
BARS: Final = (
    ("decode 512", "torchyard bfloat16", "stock bfloat16", 2.5),
    ("decode 512", "torchyard bfloat16", "ggml BF16", 1.0),
    ("decode 4096", "torchyard bfloat16", "ggml BF16", 1.0),
    ("decode 512", "torchyard int4 x int8", "ggml Q4_0", 1.0),
    ("decode 4096", "torchyard int4 x int8", "ggml Q4_0", 1.0),
    ("prefill 512", "torchyard bfloat16", "stock bfloat16", 1.2),
    ("prefill 512", "torchyard float16", "stock float16", 4.0),
)
# Who takes turns, by their weights: all at once would want more memory than many machines have.
_GROUPS: Final = (
    ("bfloat16", "BF16"),
    ("float16", "F16"),
    ("int8", "Q8_0", "INT8"),
    ("int4", "Q4_0", "INT4"),
)
_TASKS: Final = ("prefill 512", "decode 512", "decode 4096")
# How far logits may be from float32's: of 16-bit weights by rounding, of fewer by what they lose.
_FURTHEST: Final = dict.fromkeys(("bfloat16", "BF16"), 0.1) | {
    "float16": 0.05,
    **dict.fromkeys(("int8", "INT8"), 0.2),
    **dict.fromkeys(("int4", "INT4"), 0.9),
}
# Products of bytes.
_OF_BYTES: Final = ("Q8_0", "Q4_0", "INT8", "INT4")
# Two probes that differ by more tell of another speed of memory in between.
_APART: Final = 1.15


@dataclass(slots=True)
class Row:
    """A contestant at a task.

    Attributes:
        task, contestant: which.
        error: of logits against float32, relative; None where weights are others.
        seconds: of each round.
        limits: of each round, the least seconds by the machine's own limits as they were then.
        steady: whether the probes around every round agree.
        count: tokens of a round.
        resident: bytes of memory that the contestant's process held after the last round.
    """

    task: str
    contestant: str
    error: float | None
    count: int
    seconds: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    steady: bool = True
    resident: int = 0

    @property
    def rate(self) -> float:
        """Tokens per second, by the median round."""
        return self.count / statistics.median(self.seconds)

    @property
    def share(self) -> float | None:
        """The median share of what the machine's limits allow; None without limits."""
        pairs = zip(self.limits, self.seconds, strict=False)
        return statistics.median(limit / took for limit, took in pairs) if self.limits else None


class _Worker:
    """A contestant's process."""

    def __init__(self, name: str, arguments: argparse.Namespace, exact: Path) -> None:
        self.name = name
        kind, weights, activation = CONTESTANTS.get(name, ("exact", "float32", "none"))
        threads = torch.get_num_threads()
        sizes = [str(arguments.layers), str(threads)]
        python, module = sys.executable, "language.model"
        words = [kind, weights, activation, *sizes, str(exact)]
        if kind == "ggml":
            module, words = "language.ggml", [weights, *sizes, str(4096 + STEPS + 64)]
        elif kind == "openvino":
            python, module = arguments.openvino, "language.openvino"
            words = [weights, *sizes, str(exact.parent), str(exact)]
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-m", f"benchmarks.{module}", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if kind == "ggml" else None,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
        self.facts: dict[str, Any] = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, command: str) -> float:
        """Send a command, and return what it answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def resident(self) -> int:
        """Return how many bytes of memory the process holds; 0 where the system does not tell."""
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0
        line = next(line for line in lines.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: its process ended: {self._process.wait()}")
        return json.loads(line)


class _Run:
    """One run: its limits, its rows."""

    def __init__(self, arguments: argparse.Namespace, probe: Probe, console: Console) -> None:
        self.arguments = arguments
        self.threads = torch.get_num_threads()
        self.probe = probe
        self.console = console
        self.limits: Limits = probe.limits(self.threads)
        self.rows: dict[tuple[str, str], Row] = {}

    def task(self, task: str, worker: _Worker, *, timed: bool) -> None:
        """Let a contestant do a task once."""
        what, length = task.split()
        # A run that only warms up need not be long.
        steps = STEPS if timed else 2
        command = f"{what} {length}" + (f" {steps}" if what == "decode" else "")
        before = self._memory() if timed and what == "decode" else None
        seconds = worker.ask(command)
        if not timed:
            return
        row = self.rows[task, worker.name]
        row.seconds.append(seconds)
        row.resident = worker.resident()
        facts = worker.facts
        if what == "prefill":
            flops = self._flops(worker.name)
            if flops:
                row.limits.append(2.0 * facts["products"] * int(length) / flops)
            return
        after = self._memory()
        if before and after:
            row.steady = row.steady and max(before, after) <= _APART * min(before, after)
            read = facts["weight_bytes"] + facts["bytes_per_key"] * (int(length) + STEPS / 2)
            row.limits.append(STEPS * read / ((before + after) / 2))

    def _memory(self) -> float | None:
        return self.probe.read_bytes(self.threads)

    def _flops(self, name: str) -> float | None:
        weights = CONTESTANTS[name][1]
        if weights in ("float16", "F16"):
            return self.limits.float32_flops
        # Products of bytes are twice as many, on processors that have both.
        twice = CONTESTANTS[name][2] == "int8" or weights in _OF_BYTES
        flops = self.limits.bfloat16_flops or self.limits.float32_flops
        return flops * 2 if flops and twice else flops

    def table(self) -> Table:
        """Return every row."""
        table = Table(title="a Llama of a billion random parameters, one sequence")
        for column in (
            *("task", "contestant", "tokens/s", "share of the bound", "GiB", "error", "note"),
        ):
            table.add_column(column)
        for row in self.rows.values():
            if not row.seconds:
                continue
            table.add_row(
                row.task,
                row.contestant,
                f"{row.rate:.1f}",
                "" if row.share is None else f"{row.share:.2f}",
                f"{row.resident / 2**30:.1f}" if row.resident else "",
                "" if row.error is None else f"{row.error:.1e}",
                "" if row.steady else "the probes of the memory disagree",
            )
        return table

    def bars(self) -> Table:
        """Return what was asked beside what was found, by the median over rounds."""
        table = Table(title="asked")
        for column in ("task", "ours", "rival", "asked", "found", ""):
            table.add_column(column)
        for task, ours, rival, least in BARS:
            mine, theirs = self.rows.get((task, ours)), self.rows.get((task, rival))
            if not (mine and theirs and mine.seconds and theirs.seconds):
                table.add_row(task, ours, rival, f"{least}", "", "not measured")
                continue
            found = statistics.median(
                (their / theirs.count) / (my / mine.count)
                for my, their in zip(mine.seconds, theirs.seconds, strict=True)
            )
            verdict = "holds" if found >= least else "MISSED"
            table.add_row(task, ours, rival, f"{least}", f"{found:.2f}", verdict)
        return table


def _measure(run: _Run, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        exact = Path(folder, "logits.npy")
        kinds = {CONTESTANTS[name][0] for name in names}
        if kinds - {"ggml"}:
            with _Worker("exact", run.arguments, exact) as worker:
                worker.ask("check")
                if "openvino" in kinds:
                    worker.ask("export")
        for weights in _GROUPS:
            group = [name for name in names if CONTESTANTS[name][1] in weights]
            # Its graphs hold copies of the weights: as much memory as the others together.
            alone = [name for name in group if CONTESTANTS[name][0] == "compiled"]
            _measure_group(run, [name for name in group if name not in alone], exact)
            _measure_group(run, alone, exact)


def _measure_group(run: _Run, names: list[str], exact: Path) -> None:
    """Let contestants take turns."""
    with ExitStack() as stack:
        workers: list[_Worker] = []
        for name in names:
            worker = _Worker(name, run.arguments, exact)
            workers.append(stack.enter_context(worker))
            error = _checked(worker)
            if "module" in worker.facts:
                run.console.print(f"{name}: by {worker.facts['module']}")
            for task in run.arguments.tasks:
                count = int(task.split()[1]) if task.startswith("prefill") else STEPS
                run.rows[task, name] = Row(task, name, error, count)
        for task in run.arguments.tasks:
            for turn in range(run.arguments.rounds + 1):
                for worker in workers:
                    run.task(task, worker, timed=turn > 0)


def _checked(worker: _Worker) -> float | None:
    """Return how far a contestant's logits are from float32's.

    Raises:
        AssertionError: too far; nothing is timed.
    """
    kind, weights, _ = CONTESTANTS[worker.name]
    if kind == "ggml":
        return None
    error = worker.ask("check")
    if not error <= _FURTHEST[weights]:
        raise AssertionError(
            f"{worker.name}: expected logits within {_FURTHEST[weights]} of float32's, got {error}"
        )
    return error


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.language", description=sys.modules[__name__].__doc__
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="contestant",
        help=f"of {', '.join(CONTESTANTS)}, or how their names begin; all by default",
    )
    parser.add_argument("--tasks", nargs="+", default=list(_TASKS), choices=_TASKS)
    parser.add_argument("--layers", type=int, default=16, help="fewer for a quick look")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: as torch would use")
    parser.add_argument("--openvino", metavar="PYTHON", help="an interpreter that has openvino")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace, console: Console) -> list[str]:
    """Return the contestants that the words mean, and are installed.

    Raises:
        SystemExit: a word means none.
    """
    words = arguments.names
    found = [name for name in CONTESTANTS if not words or name.startswith(tuple(words))]
    for word in words:
        if not any(name.startswith(word) for name in CONTESTANTS):
            sys.exit(f"no contestant begins with {word!r}; there are: {', '.join(CONTESTANTS)}")
    missing = {}
    try:
        ggml.api()
    except ImportError as error:
        missing["ggml"] = str(error)
    if arguments.openvino is None:
        missing["openvino"] = "--openvino names no interpreter that has it"
    for kind, why in missing.items():
        absent = [name for name in found if CONTESTANTS[name][0] == kind]
        if absent:
            console.print(f"{', '.join(absent)}: not measured: {why}")
        found = [name for name in found if name not in absent]
    return found


def main() -> None:
    arguments = _arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    console = Console(width=None if sys.stdout.isatty() else 150)
    names = _chosen(arguments, console)
    with Probe() as probe:
        run = _Run(arguments, probe, console)
        _measure(run, names)
    console.print(run.table())
    console.print(run.bars())
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in run.rows.values()], indent=1))
