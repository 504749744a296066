"""What a person sees of a run: a progress bar, tables, the written text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text as Styled

from torchyard import Decision
from torchyard_attention.demo._comparison import Comparison, Race, Trial
from torchyard_attention.demo._device import Machine
from torchyard_attention.demo._plot import INSTALL
from torchyard_attention.demo._result import Result
from torchyard_attention.demo._settings import Settings
from torchyard_attention.demo._text import Text
from torchyard_attention.demo._training import Curve
from torchyard_attention.demo._training import Progress as Place

_LINES: Final = 8
_BAR: Final = 1000


class Report:
    """Tell a person how the run goes.

    Args:
        console: where to; rich decides what its terminal can show.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def start(
        self,
        settings: Settings,
        machine: Machine,
        text: Text,
        parameters: int,
        decisions: dict[str, Decision],
    ) -> None:
        """Say what is about to be done, with what, and which implementations will compute it."""
        size, total = settings.size, len(text.train) + len(text.held_out)
        self._heading("What runs")
        lines = Table.grid(padding=(0, 2))
        device = f"{settings.device.type}: {machine.text}"
        if machine.others:
            device += f"; --device also takes {', '.join(machine.others)}"
        for name, words in {
            "text": f"{text.source}: {text.files} files, {total:,} bytes, a tenth held out",
            "model": f"{size.layers} layers of {size.heads} heads of {size.head_dim}, "
            f"{parameters:,} parameters, one token per byte",
            "attention": f"ALiBi as a score_mod, a causal window of {size.window} as a block mask",
            "step": f"{size.batch} x {size.length} bytes",
            "device": device,
            "dtype": str(settings.dtype).removeprefix("torch."),
        }.items():
            lines.add_row(Styled(name, style="dim"), words)
        self._console.print(lines)
        self._heading("Which implementation computes it, and why")
        for part, decision in decisions.items():
            self._decision(part, decision)

    @contextlib.contextmanager
    def training(self, settings: Settings) -> Iterator[Callable[[Place], None]]:
        """Show a live bar; where there is no terminal, a line now and then."""
        self._heading("Training")
        columns = (
            BarColumn(bar_width=30),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        live = self._console.is_terminal
        bar = Progress(*columns, console=self._console, disable=not live)
        task = bar.add_task("first step", total=_BAR)
        said = 0

        def tell(place: Place) -> None:
            nonlocal said
            pace = f"{place.bytes_per_second:,.0f} bytes/s"
            words = f"step {place.step:>4}  loss {place.loss:.3f}  {pace}"
            bar.update(task, completed=place.share * _BAR, description=words)
            if not live and place.share * _LINES >= said:
                said = int(place.share * _LINES) + 1
                self._console.print(f"{place.share:4.0%}  {words}")

        with bar:
            yield tell

    @contextlib.contextmanager
    def waiting(self, words: str) -> Iterator[None]:
        """Show that something is being done."""
        with self._console.status(words):
            yield

    def trained(self, curve: Curve, unigram: float, table: Path, plot: Path | None) -> None:
        """Say how the losses fell, and where the curve was saved."""
        rows = Table(box=None, pad_edge=False)
        for heading in ("loss, nats per byte", "start", "end"):
            rows.add_column(heading, justify="left" if heading.startswith("loss") else "right")
        rows.add_row("training", f"{curve.train[0][1]:.3f}", f"{curve.smoothed(-0.1):.3f}")
        rows.add_row("held out", f"{curve.held_out[0][1]:.3f}", f"{curve.held_out[-1][1]:.3f}")
        rows.add_row("held out, by byte frequencies alone", "", f"{unigram:.3f}", style="dim")
        self._console.print(rows)
        self._console.print(f"{len(curve.train)} steps in {curve.seconds:.0f} s; curve: {table}")
        if plot is None:
            self._console.print(f"no plot: matplotlib is not installed; {INSTALL}")
        else:
            self._console.print(f"plot: {plot}")

    def wrote(self, prompt: str, written: str, pace: float) -> None:
        """Show the prompt and what the model made of it."""
        self._heading(f"Continuing a prompt, {pace:,.0f} bytes/s with a cache of one window")
        self._console.print(Styled.assemble((prompt, "bold"), written))

    def finish(self, result: Result) -> None:
        """Show the comparison, and whether everything is as it should be."""
        if result.comparison is not None:
            self._comparison(result.comparison, result)
        self._console.print()
        failures = result.failures()
        for failure in failures:
            self._console.print(Styled(f"FAILED: {failure}", style="bold red"))
        if not failures:
            words = f"ok: the loss fell and both sides agree, in {result.seconds:.0f} s"
            self._console.print(Styled(words, style="bold green"))

    def _comparison(self, comparison: Comparison, result: Result) -> None:
        self._heading("Beside stock torch: same weights, same batches, in turn")
        rows = Table(box=None, pad_edge=False)
        for heading in ("", "torchyard", "stock torch", "stock / ours", "stock's formulation"):
            rows.add_column(heading, justify="left" if heading[:5] in {"", "stock'"} else "right")
        training, generation = comparison.training, comparison.generation
        rows.add_row("training step", *_times(training), comparison.training_name)
        rows.add_row("bytes per second", *_paces(generation), comparison.decoding_name)
        self._console.print(rows)
        self._console.print(
            f"medians of {len(training.ours)} and {len(generation.ours)} rounds; in brackets the "
            f"least and greatest ratio; above 1 ours is faster",
            style="dim",
        )
        if result.machine.busy:
            words = f"the machine was busy (load {result.machine.load:.1f}): times say little"
            self._console.print(words, style="yellow")
        self._trials("attention alone, forward and backward", comparison.attention)
        self._trials("attention alone, one byte", comparison.decoding)
        parity = comparison.parity
        verdict = "agree" if parity.holds else "DISAGREE"
        ties = f", {parity.near_ties} at a tie" if parity.near_ties else ""
        self._console.print()
        self._console.print(
            f"both sides {verdict}: relative difference of loss {parity.loss:.1e}, of gradients "
            f"{parity.gradient:.1e}, of logits {parity.logits:.1e} (tolerance "
            f"{parity.tolerance:.0e}); {parity.same_bytes} of {parity.generated} generated bytes "
            f"are the same{ties}"
        )

    def _trials(self, title: str, trials: tuple[Trial, ...]) -> None:
        rows = Table(box=None, pad_edge=False)
        rows.add_column(title, style="dim")
        rows.add_column("")
        for trial in trials:
            words = trial.refusal if trial.seconds is None else _duration(trial.seconds)
            rows.add_row(trial.name, words)
        self._console.print()
        self._console.print(rows)

    def _decision(self, part: str, decision: Decision) -> None:
        name = decision.name or "no implementation"
        self._console.print(
            Styled.assemble(
                f"{part} ({decision.contract}): ",
                (name, "bold green" if decision.name else "bold red"),
                f" (decided by {decision.source})",
            )
        )
        rows = Table.grid(padding=(0, 2))
        for candidate in decision.trace:
            verdict = candidate.verdict
            words = f"{verdict.code}: {verdict.text}" if verdict.code else verdict.text
            rows.add_row(f"  {candidate.name}", str(candidate.outcome), words)
        self._console.print(rows)

    def _heading(self, words: str) -> None:
        self._console.print()
        self._console.print(Styled(words, style="bold"))


def _times(race: Race) -> tuple[str, str, str]:
    ours, stock = (_duration(_median(times)) for times in (race.ours, race.stock))
    return ours, stock, _ratio(race)


def _paces(race: Race) -> tuple[str, str, str]:
    ours, stock = (f"{1 / _median(times):,.0f}" for times in (race.ours, race.stock))
    return ours, stock, _ratio(race)


def _ratio(race: Race) -> str:
    ratio, least, greatest = race.ratio()
    return f"{ratio:.2f} ({least:.2f} to {greatest:.2f})"


def _median(times: tuple[float, ...]) -> Any:
    from statistics import median

    return median(times)


def _duration(seconds: float) -> str:
    if seconds >= 1e-2:
        return f"{seconds * 1e3:,.0f} ms"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
