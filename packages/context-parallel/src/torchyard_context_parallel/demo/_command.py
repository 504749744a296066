"""The command ``torchyard demo-ranks``."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from torchyard_attention.demo import Size, TextError, collect_text
from torchyard_context_parallel._api import SCHEDULES
from torchyard_context_parallel.demo._processes import run_together
from torchyard_context_parallel.demo._training import Plan, Step, train_alone

# Sums in another order differ in the last digits, and training makes more of that at each step: the
# first steps show whether both compute the same, the others whether they learn the same.
_FIRST: Final = 8
_FIRST_TOLERANCE: Final = 1e-4
_TOLERANCE: Final = 2e-2
_LINES: Final = 6


@dataclass(frozen=True, slots=True)
class _Outcome:
    alone: list[Step]
    together: list[Step]

    @property
    def differences(self) -> list[float]:
        """The relative difference of losses, step by step."""
        pairs = zip(self.alone, self.together, strict=True)
        return [abs(a.loss - b.loss) / a.loss for a, b in pairs]

    def failures(self) -> list[str]:
        """Say what is not as it should be."""
        found = []
        if not self.together[-1].loss < self.together[0].loss:
            found.append("the loss did not fall")
        for steps, bound in (
            (self.differences[:_FIRST], _FIRST_TOLERANCE),
            (self.differences[_FIRST:], _TOLERANCE),
        ):
            # Said this way round because of NaN.
            beyond = [step for step in steps if not step <= bound]
            if beyond:
                found.append(
                    f"the losses differ by {beyond[0]:.1e} of one process's, more than {bound:.0e}"
                )
        return found


@click.command("demo-ranks")
@click.option("--ranks", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--backend", default="gloo", show_default=True, help="Of torch.distributed.")
@click.option("--schedule", type=click.Choice(SCHEDULES), default="ring", show_default=True)
@click.option("--steps", type=click.IntRange(min=2), default=40, show_default=True)
@click.option("--length", type=click.IntRange(min=256), default=2048, show_default=True)
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    metavar="FILE_OR_DIR",
    help="Learn this text; by default this Python's standard library.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def command(
    ranks: int,
    backend: str,
    schedule: str,
    steps: int,
    length: int,
    text: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Train the demo's transformer with each sequence spread over processes of this machine.

    The same steps are taken in one process first. Exit status 0 if the loss fell and both lost
    alike at every step, 1 if not.
    """
    if schedule == "hybrid":
        raise click.BadParameter(
            "expected a schedule for ranks in one row; a mesh of two dimensions is not set up here",
            param_hint="--schedule",
        )
    try:
        learned = collect_text(text, length)
    except TextError as error:
        raise click.BadParameter(str(error), param_hint="--text") from error
    plan = Plan(Size(length=length), steps, seed, schedule)
    console = Console(stderr=as_json, highlight=False)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("one process", total=2 * steps)

        def tell(step: Step) -> None:
            progress.update(task, advance=1, description=f"loss {step.loss:.3f}")

        outcome = _Outcome(
            train_alone(plan, learned, tell), run_together(ranks, backend, plan, learned, tell)
        )
    failures = outcome.failures()
    if as_json:
        click.echo(json.dumps(_document(outcome, failures), indent=2))
    else:
        _show(console, outcome, failures, f"{ranks} processes, {backend}, {schedule}", length)
    sys.exit(1 if failures else 0)


def _show(
    console: Console, outcome: _Outcome, failures: list[str], ranks: str, length: int
) -> None:
    console.print(f"One transformer, sequences of {length} bytes, in one process and in {ranks}")
    table = Table(box=None, pad_edge=False)
    for heading in ("step", "loss, one process", f"loss, {ranks}", "difference"):
        table.add_column(heading, justify="right")
    last = len(outcome.alone) - 1
    for number in sorted({round(last * line / (_LINES - 1)) for line in range(_LINES)}):
        alone, together = outcome.alone[number].loss, outcome.together[number].loss
        difference = f"{abs(alone - together):.1e}"
        table.add_row(str(number + 1), f"{alone:.5f}", f"{together:.5f}", difference)
    console.print(table)
    seconds = [statistics.median(s.seconds for s in x) for x in (outcome.alone, outcome.together)]
    console.print(f"median step: {seconds[0] * 1e3:.0f} ms and {seconds[1] * 1e3:.0f} ms")
    for failure in failures:
        console.print(f"FAILED: {failure}", style="bold red")
    if not failures:
        first, all_steps = max(outcome.differences[:_FIRST]), max(outcome.differences)
        words = (
            f"ok: the loss fell, alike within {first:.1e} in the first {_FIRST} steps and "
            f"{all_steps:.1e} in all"
        )
        console.print(words, style="bold green")


def _document(outcome: _Outcome, failures: list[str]) -> dict[str, Any]:
    return {
        "alone": [{"loss": step.loss, "seconds": step.seconds} for step in outcome.alone],
        "together": [{"loss": step.loss, "seconds": step.seconds} for step in outcome.together],
        "differences": outcome.differences,
        "failures": failures,
    }
