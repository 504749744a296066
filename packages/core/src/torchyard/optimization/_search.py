"""Trials: what the installed plugins offer, one after the other, on what was kept before."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from torchyard._contracts.optimization import Optimization, OptimizationStage, Variant
from torchyard._errors import NotApplicableError, OptimizeError
from torchyard._progress import Steps as Progress
from torchyard.optimization._example import ExampleCall
from torchyard.optimization._measurement import Bench
from torchyard.optimization._report import Figures, Report, Trial, TrialOutcome
from torchyard.optimization._results import Judge, has_rounding
from torchyard.optimization._steps import Step, Steps

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Search"]

# What gains less is within what two measurements differ by.
_GAIN: Final = 0.97
# How much slower a model may become where memory is the goal.
_SLOWER: Final = 1.25


class Search:
    """Finds what makes the example of a model faster or smaller.

    Args:
        model: changed in place.
        example: the call.
        goal: ``latency``, ``throughput`` or ``memory``.
        tolerance: of results, see :func:`torchyard.optimize`.
        budget: seconds after which nothing new is tried.
        progress: says what begins.
    """

    def __init__(
        self,
        model: nn.Module,
        example: ExampleCall,
        goal: str,
        tolerance: float | None,
        budget: float,
        progress: Progress,
    ) -> None:
        self._model = model
        self._goal = goal
        self._lossy = tolerance is not None
        self._budget = budget
        self._begin = time.monotonic()
        self._progress = progress
        self._bench = Bench(model, example, goal)
        self._trials: list[Trial] = []
        # Of what a compiler alone has replaced: the steps, and the trials until then.
        self._replaced: tuple[list[Step], list[Trial]] | None = None
        self.steps = Steps(model)
        progress.step("the model as it is")
        try:
            stock = self._bench.results()
        except OptimizeError:
            raise
        except Exception as error:
            raise OptimizeError(
                f"optimize: example: expected a call that the model takes, got {_line(error)}"
            ) from error
        if Judge(stock, None, 0.0).check(self._bench.results())[1]:
            raise OptimizeError(
                "optimize: example: expected equal results of two equal calls, got others; seed "
                "what it draws at random, and leave out what it counts"
            )
        exact = None
        if not self._lossy:
            # Integers, such as tokens, have to be equal: nothing has to be known of rounding.
            exact = self._bench.exact() if has_rounding(stock) else stock
        self._judge = Judge(stock, exact, tolerance)
        self._stock = self._current = self._bench.figures(None)

    def run(self, optimizations: Sequence[Optimization]) -> Report:
        """Try everything, and leave on the model what is kept."""
        order = list(OptimizationStage)
        try:
            for optimization in sorted(optimizations, key=lambda one: order.index(one.stage)):
                self._try(optimization)
            if self._goal == "memory":
                self.steps.give_up_originals()
            return self._report()
        except BaseException:
            if not self.steps.final:
                self.steps.undo()
            raise

    def note(self, optimization: str, outcome: TrialOutcome, reason: str) -> None:
        """Add to the report an optimization that is not tried."""
        self._trials.append(Trial(optimization, "", outcome, reason))

    def _try(self, optimization: Optimization) -> None:
        if late := self._late():
            self.note(optimization.name, TrialOutcome.NOT_TRIED, late)
            return
        try:
            variants = optimization.variants(self._model)
        except NotApplicableError as error:
            self.note(optimization.name, TrialOutcome.NOT_APPLICABLE, str(error))
            return
        except Exception as error:
            self.note(optimization.name, TrialOutcome.FAILED, _line(error))
            return
        self._progress.expect(len(variants))
        kept = self.steps.made
        if kept:
            # The machine may be faster or slower than when it was measured.
            self._current = self._measured()
        self._keep_best(optimization, variants, alone=False)
        # A compiler sees less of a model whose parts are ours: it may do better with the original.
        if kept and optimization.stage is OptimizationStage.COMPILATION and not self._late():
            self._keep_best_alone(optimization, variants)

    def _keep_best_alone(self, optimization: Optimization, variants: Sequence[Variant]) -> None:
        """Try variants on the model as it came, and keep one that is better than all there is."""
        self._progress.expect(len(variants))
        undone = self.steps.undo()
        before = list(self._trials)
        if self._keep_best(optimization, variants, alone=True):
            self._replaced = undone, before
            reason = f"{optimization.name} alone is better"
            self._trials[: len(before)] = [
                replace(trial, outcome=TrialOutcome.NOT_BETTER, reason=reason)
                if trial.outcome is TrialOutcome.KEPT
                else trial
                for trial in before
            ]
            return
        for step in undone:
            self.steps.apply(step.optimization, step.variant)

    def _keep_best(
        self, optimization: Optimization, variants: Sequence[Variant], *, alone: bool
    ) -> bool:
        """Try variants on the model as it is now; keep the best that is better than what there is.

        Returns:
            Whether one was kept.
        """
        best: tuple[int, Variant, Figures] | None = None
        for variant in variants:
            trial = self._trial(optimization, variant, alone=alone)
            self._trials.append(trial)
            if trial.after is None:
                continue
            rival = self._current if best is None else best[2]
            if self._is_better(trial.after, rival):
                best = len(self._trials) - 1, variant, trial.after
        if best is None:
            return False
        place, variant, _ = best
        trial = self._trials[place]
        if not self._is_confirmed(optimization, variant, alone=alone):
            reason = f"{trial.reason}, but not when it is measured again"
            self._trials[place] = replace(trial, reason=reason)
            return False
        self._trials[place] = replace(trial, outcome=TrialOutcome.KEPT)
        return True

    def _is_confirmed(self, optimization: Optimization, variant: Variant, *, alone: bool) -> bool:
        """Measure without and with a variant once more; leave it applied if it is better again."""
        without = self._current if alone else self._measured()
        if not alone and not self.steps.made:
            # The first measurement may be of a machine that was busy, or not yet warm.
            self._stock = without
        self.steps.apply(optimization, variant)
        after = self._measured()
        if self._is_better(after, without):
            self._current = after
            return True
        self.steps.undo_last()
        self._current = without
        return False

    def _trial(self, optimization: Optimization, variant: Variant, *, alone: bool) -> Trial:
        """Apply a variant, check its results, measure it, and take it back."""
        trial = Trial(optimization.name, variant.name, TrialOutcome.NOT_TRIED, "", alone=alone)
        if variant.lossy and not self._lossy:
            return replace(trial, reason="it rounds to fewer bits, which needs a tolerance")
        if late := self._late():
            return replace(trial, reason=late)
        self._progress.step(f"{optimization.name} {variant.name}")
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                step = self.steps.apply(optimization, variant)
            except OptimizeError:
                raise
            except NotApplicableError as error:
                return replace(trial, outcome=TrialOutcome.NOT_APPLICABLE, reason=str(error))
            except Exception as error:
                return replace(trial, outcome=TrialOutcome.FAILED, reason=_line(error))
            try:
                found = self._bench.results()
                first = time.perf_counter() - begin
                difference, wrong = self._judge.check(found)
                after = None if wrong else self._measured()
            except Exception as error:
                return replace(trial, outcome=TrialOutcome.FAILED, reason=_line(error))
            finally:
                self.steps.undo_last()
        trial = replace(
            trial,
            first_seconds=first,
            error=difference.error,
            notes=(*step.applied.notes, *dict.fromkeys(_line(one.message) for one in caught)),
        )
        if after is None:
            return replace(trial, outcome=TrialOutcome.WRONG, reason=wrong)
        return replace(
            trial,
            outcome=TrialOutcome.NOT_BETTER,
            reason=self._compared(after),
            before=self._current,
            after=after,
        )

    def _measured(self) -> Figures:
        return self._bench.figures(self.steps.reset, self.steps.held)

    def _is_better(self, new: Figures, old: Figures) -> bool:
        if self._goal == "memory":
            smaller = new.memory < _GAIN * old.memory
            return smaller and new.seconds <= _SLOWER * self._stock.seconds
        return new.seconds < _GAIN * old.seconds

    def _compared(self, after: Figures) -> str:
        before = self._current
        return (
            f"a call takes {after.seconds / before.seconds:.2f} of the time and "
            f"{after.memory / max(before.memory, 1):.2f} of the memory"
        )

    def _late(self) -> str:
        """Return why nothing new is tried; empty while there is time."""
        late = time.monotonic() - self._begin > self._budget
        return f"the budget of {self._budget:g} s is spent" if late else ""

    def _report(self) -> Report:
        self._progress.step("the model as it is now")
        after = self._measured() if self.steps.made else self._stock
        if self.steps.made and not self.steps.final and not self._is_better(after, self._stock):
            after = self._reconsidered(after)
        difference, wrong = self._judge.check(self._bench.results())
        if wrong:
            raise OptimizeError(f"optimize: what was kept gives wrong results together: {wrong}")
        kept = [trial for trial in self._trials if trial.outcome is TrialOutcome.KEPT]
        return Report(
            self._goal,
            self._stock,
            after,
            difference.error if kept else 0.0,
            sum(trial.first_seconds for trial in kept),
            tuple(self._trials),
            time.monotonic() - self._begin,
        )

    def _reconsidered(self, after: Figures) -> Figures:
        """Measure the model as it came once more; take all back if it is no worse than now."""
        undone = self.steps.undo()
        self._stock = self._measured()
        if self._is_better(after, self._stock):
            for step in undone:
                self.steps.apply(step.optimization, step.variant)
            return after
        if self._replaced is not None and (found := self._restored(*self._replaced)):
            return found
        reason = "at the end the model was no better than as it came"
        self._trials = [
            replace(trial, outcome=TrialOutcome.NOT_BETTER, reason=reason)
            if trial.outcome is TrialOutcome.KEPT
            else trial
            for trial in self._trials
        ]
        return self._stock

    def _restored(self, steps: Sequence[Step], trials: Sequence[Trial]) -> Figures | None:
        """Apply again what a compiler alone had replaced; None, and undone, if it is no better."""
        for step in steps:
            self.steps.apply(step.optimization, step.variant)
        found = self._measured()
        if not self._is_better(found, self._stock):
            self.steps.undo()
            return None
        reason = "at the end it was no better than the model as it came"
        later = [
            replace(trial, outcome=TrialOutcome.NOT_BETTER, reason=reason)
            if trial.outcome is TrialOutcome.KEPT
            else trial
            for trial in self._trials[len(trials) :]
        ]
        self._trials = [*trials, *later]
        return found


def _line(error: Any) -> str:
    """Return an error, or a warning, in one line."""
    line = (str(error).strip().splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {line}"
