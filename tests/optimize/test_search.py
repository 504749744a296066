"""What is kept, what is refused, and that a model is as it was wherever it should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optimize.conftest import Offering
from tests.optimize.toys import (
    FAST,
    FASTER,
    SLOW,
    Delayed,
    delayed,
    example,
    offer,
    outcomes,
    setting,
    variant,
)
from torchyard import optimize
from torchyard.optimization import (
    Applied,
    NotApplicableError,
    OptimizationStage,
    OptimizeError,
    TrialOutcome,
    Variant,
)
from torchyard.optimization._measurement import Bench
from torchyard.optimization._snapshot import Snapshot


def test_the_fastest_variant_of_each_is_kept_and_undo_is_exact(offering: Offering) -> None:
    offering(
        offer("second", variant("slower", delay=SLOW), stage=OptimizationStage.EXECUTION),
        offer("first", variant("fast", delay=FAST), variant("faster", delay=FASTER)),
    )
    model = delayed()
    before, expected = Snapshot(model), model(example())
    done = optimize(model, example())
    assert outcomes(done.report) == {
        "first fast": TrialOutcome.NOT_BETTER,
        "first faster": TrialOutcome.KEPT,
        "second slower": TrialOutcome.NOT_BETTER,
    }
    assert done.model is model
    assert model.delay == FASTER
    assert done.report is not None
    assert done.report.before.seconds > 2 * done.report.after.seconds
    assert [step.variant for step in done.plan.steps] == ["faster"]
    done.undo()
    assert before.change(model) == ""
    assert torch.equal(model(example()), expected)


def test_wrong_results_are_refused_however_fast(offering: Offering) -> None:
    offering(offer("weights", variant("wrong", delay=FASTER, shift=1e-3)))
    model = delayed()
    done = optimize(model, example())
    assert outcomes(done.report) == {"weights wrong": TrialOutcome.WRONG}
    assert done.report is not None
    (trial,) = done.report.trials
    assert trial.error > 1e-5
    assert "differs from float64" in trial.reason
    assert model.delay == SLOW


@pytest.mark.parametrize(("shift", "outcome"), [(1e-3, "kept"), (1.0, "wrong results")])
def test_a_tolerance_bounds_what_rounding_may_cost(
    offering: Offering, shift: float, outcome: str
) -> None:
    rounded = offer("weights", variant("int4", delay=FASTER, shift=shift, lossy=True))
    offering(rounded)
    without = optimize(delayed(), example())
    assert outcomes(without.report) == {"weights int4": TrialOutcome.NOT_TRIED}
    within = optimize(delayed(), example(), tolerance=0.01)
    assert outcomes(within.report) == {"weights int4": outcome}
    if outcome == "kept":
        assert within.report is not None
        assert 1e-5 < within.report.error < 0.01


def test_integers_have_to_be_equal_but_for_the_tolerance(offering: Offering) -> None:
    offering(offer("weights", variant("wrong", delay=FASTER, shift=100.0)))

    def largest(model: nn.Module) -> Tensor:
        found: Tensor = model(example()).argmax(-1)
        return found

    moved = delayed()
    with torch.no_grad():
        moved.layer.bias[0] -= 50.0

    def first_of_shifted(model: nn.Module) -> Tensor:
        found: Tensor = (model(example()) > 20).long()
        return found

    assert outcomes(optimize(moved, largest).report) == {"weights wrong": TrialOutcome.KEPT}
    done = optimize(delayed(), first_of_shifted)
    assert outcomes(done.report) == {"weights wrong": TrialOutcome.WRONG}
    assert done.report is not None
    assert "of its elements differ" in done.report.trials[0].reason


def test_what_raises_is_taken_back_and_told(offering: Offering) -> None:
    def failing(model: nn.Module) -> Variant:
        def apply(keep: bool) -> Applied:
            raise RuntimeError("no compiler here")

        return Variant("broken", apply)

    def refused(model: nn.Module) -> Sequence[Variant]:
        raise NotApplicableError("it has no layers")

    def wrong(model: nn.Module) -> Variant:
        def apply(keep: bool) -> Applied:
            def forward(x: Tensor) -> Tensor:
                raise ValueError("no such shape")

            model.__dict__["forward"] = forward
            return Applied(lambda: model.__dict__.pop("forward") and None)

        return Variant("raises", apply)

    none = offer("nothing")
    offering(
        offer("weights", failing, wrong, variant("fast", delay=FASTER)),
        type(none)(none.name, OptimizationStage.REUSE, none.summary, refused),
    )
    done = optimize(delayed(), example())
    assert outcomes(done.report) == {
        "weights broken": TrialOutcome.FAILED,
        "weights raises": TrialOutcome.FAILED,
        "weights fast": TrialOutcome.KEPT,
        "nothing": TrialOutcome.NOT_APPLICABLE,
    }
    assert done.report is not None
    assert "weights broken: failed: RuntimeError: no compiler here" in str(done.report)
    assert "nothing: not applicable: it has no layers" in str(done.report)


def test_an_optimization_that_leaves_its_mark_is_named(offering: Offering) -> None:
    def marking(model: nn.Module) -> Variant:
        def apply(keep: bool) -> Applied:
            model.register_forward_hook(lambda *_: None)
            raise RuntimeError("too late")

        return Variant("marks", apply)

    offering(offer("weights", marking))
    with pytest.raises(OptimizeError, match=r"weights marks failed and left the model changed"):
        optimize(delayed(), example())

    def forgetting(model: nn.Module) -> Variant:
        def apply(keep: bool) -> Applied:
            setting(model, "delay", FASTER)
            return Applied(lambda: None)

        return Variant("stays", apply)

    offering(offer("weights", forgetting))
    with pytest.raises(OptimizeError, match=r"undo of weights stays: .* a change: delay"):
        optimize(delayed(), example())


def test_an_interrupted_search_leaves_the_model_as_it_was(offering: Offering) -> None:
    def interrupted(model: nn.Module) -> Sequence[Variant]:
        raise KeyboardInterrupt

    first = offer("weights", variant("fast", delay=FASTER))
    last = offer("late", stage=OptimizationStage.REUSE)
    offering(first, type(last)(last.name, last.stage, last.summary, interrupted))
    model = delayed()
    before = Snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        optimize(model, example())
    assert before.change(model) == ""


def test_a_gain_that_does_not_come_again_is_no_gain(offering: Offering) -> None:
    delays = iter([FASTER, SLOW])

    def once(model: nn.Module) -> Variant:
        return Variant("lucky", lambda keep: Applied(setting(model, "delay", next(delays))))

    offering(offer("weights", once))
    model = delayed()
    done = optimize(model, example())
    assert outcomes(done.report) == {"weights lucky": TrialOutcome.NOT_BETTER}
    assert "but not when it is measured again" in str(done.report)
    assert model.delay == SLOW
    assert not done.plan.steps


@pytest.mark.parametrize("late", [SLOW, FAST])
def test_what_is_no_better_at_the_end_is_taken_back(
    offering: Offering, monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    seconds = {SLOW: SLOW, FASTER: FASTER}

    def slowed(model: nn.Module) -> Sequence[Variant]:
        seconds[FASTER] = late
        raise NotApplicableError("it only slows the machine")

    last = offer("late", stage=OptimizationStage.REUSE)
    offering(
        offer("weights", variant("fast", delay=FASTER)),
        type(last)(last.name, last.stage, last.summary, slowed),
    )
    monkeypatch.setattr(Bench, "seconds", lambda bench, *_, **__: seconds[bench._model.delay])
    model = delayed()
    done = optimize(model, example())
    stays = late == FAST
    assert bool(done.plan.steps) == stays
    assert model.delay == (FASTER if stays else SLOW)
    assert done.report is not None
    assert done.report.after.seconds == late
    assert ("no better than as it came" in str(done.report)) != stays


def test_after_the_budget_nothing_new_is_tried_and_all_is_listed(offering: Offering) -> None:
    offering(offer("weights", variant("fast", delay=FASTER)), offer("late", variant()))
    done = optimize(delayed(), example(), budget=0.0)
    assert outcomes(done.report) == {
        "weights": TrialOutcome.NOT_TRIED,
        "late": TrialOutcome.NOT_TRIED,
    }
    assert "the budget of 0 s is spent" in str(done.report)
    assert not done.plan.steps


def test_skipped_optimizations_are_listed_and_unknown_ones_refused(offering: Offering) -> None:
    offering(offer("weights", variant("fast", delay=FASTER)))
    model = delayed()
    done = optimize(model, example(), skip=["weights"])
    assert outcomes(done.report) == {"weights": TrialOutcome.NOT_TRIED}
    assert model.delay == SLOW
    with pytest.raises(ValueError, match=r"skip: expected names of optimizations \(weights\)"):
        optimize(model, example(), skip=["wheels"])


def test_for_memory_the_originals_are_given_up(offering: Offering) -> None:
    offering(offer("weights", variant("small", freed=40)), offer("others", variant("same")))
    model = delayed(FASTER)
    done = optimize(model, example(), goal="memory")
    assert outcomes(done.report) == {
        "weights small": TrialOutcome.KEPT,
        "others same": TrialOutcome.NOT_BETTER,
    }
    with pytest.raises(OptimizeError, match="gave them up; load the model again"):
        done.undo()


def test_memory_is_not_bought_with_more_than_a_quarter_of_the_time(offering: Offering) -> None:
    offering(offer("weights", variant("small", delay=SLOW, freed=40)))
    done = optimize(delayed(FASTER), example(), goal="memory")
    assert outcomes(done.report) == {"weights small": TrialOutcome.NOT_BETTER}


def test_every_call_gets_its_inputs_as_they_were(offering: Offering) -> None:
    offering(offer("weights", variant("fast", delay=FASTER)))

    class Counting(Delayed):
        def forward(self, x: Tensor, seen: dict[str, int] | None = None) -> Tensor:
            found = super().forward(x)
            x.zero_()
            assert seen is not None
            seen["calls"] = seen["calls"] + 1
            return found * seen["calls"]

    given: dict[str, Any] = {"x": example(), "seen": {"calls": 0}}
    optimize(Counting().eval(), given)
    assert torch.equal(given["x"], example())
    assert given["seen"] == {"calls": 0}


def test_generators_are_as_they_were_and_draw_alike_in_each_call(offering: Offering) -> None:
    offering(offer("weights", variant("fast", delay=FASTER)))

    class Noisy(Delayed):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.rand(3)

    model = Noisy().eval()
    before = torch.get_rng_state()
    done = optimize(model, example(), tolerance=1e-6)
    assert outcomes(done.report) == {"weights fast": TrialOutcome.KEPT}
    assert torch.equal(torch.get_rng_state(), before)


class _Counting(Delayed):
    def __init__(self) -> None:
        super().__init__(FASTER)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + self.calls


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (_Counting().eval(), example(), "example: expected equal results of two equal calls"),
        (delayed(), lambda model: "text", "example: expected a call that returns a tensor"),
        (
            delayed(),
            torch.zeros(2, 3),
            "example: expected a call that the model takes, got Runtime",
        ),
    ],
)
def test_results_that_nothing_can_be_judged_by_are_refused(
    offering: Offering, model: nn.Module, given: Any, words: str
) -> None:
    offering(offer("weights", variant("fast", delay=FASTER)))
    with pytest.raises(OptimizeError, match=words):
        optimize(model, given)


def test_a_model_that_does_not_run_in_float64_needs_a_tolerance(offering: Offering) -> None:
    class Narrow(Delayed):
        def forward(self, x: Tensor) -> Tensor:
            if x.dtype is torch.float64:
                raise TypeError("no float64 here")
            return super().forward(x)

    offering(offer("weights", variant("fast", delay=FASTER)))
    with pytest.raises(OptimizeError, match=r"tolerance: expected one, .*: TypeError: no float64"):
        optimize(Narrow().eval(), example())
    done = optimize(Narrow().eval(), example(), tolerance=1e-6)
    assert outcomes(done.report) == {"weights fast": TrialOutcome.KEPT}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"model": 3}, TypeError, "model: expected a torch.nn.Module, got 3"),
        ({"model": Delayed()}, ValueError, r"one in training; call model.eval\(\)"),
        ({"example": 3}, TypeError, "example: expected a tensor, a tuple of arguments"),
        ({"example": {3: 4}}, TypeError, r"example \(a keyword\): expected a string"),
        ({"goal": "speed"}, ValueError, "goal: expected 'latency' or 'throughput' or 'memory'"),
        ({"tolerance": 0.0}, ValueError, "tolerance: expected a finite number above 0"),
        ({"budget": -1}, ValueError, "budget: expected a finite number of at least 0"),
        ({"progress": 1}, TypeError, "progress: expected True or False"),
    ],
)
def test_what_does_not_fit_is_named(
    offering: Offering, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    offering()
    with pytest.raises(error, match=words):
        optimize(**{"model": delayed(), "example": example(), **given})
