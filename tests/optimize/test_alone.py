"""A compiler is tried on top of what was kept, and on the model as it came."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import nn

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
    TrialOutcome,
    Variant,
)
from torchyard.optimization._measurement import Bench


def test_a_compiler_is_tried_on_the_original_too(offering: Offering) -> None:
    def compiled(model: nn.Module) -> Variant:
        def apply(keep: bool) -> Applied:
            # It gains nothing on top of the other, and more than that on its own.
            assert isinstance(model, Delayed)
            return Applied(setting(model, "delay", FASTER if model.delay == SLOW else SLOW))

        return Variant("whole", apply)

    offering(
        offer("weights", variant("fast", delay=FAST)),
        offer("compile", compiled, stage=OptimizationStage.COMPILATION),
    )
    model = delayed()
    done = optimize(model, example())
    assert outcomes(done.report) == {
        "weights fast": TrialOutcome.NOT_BETTER,
        "compile whole": TrialOutcome.NOT_BETTER,
        "compile whole alone": TrialOutcome.KEPT,
    }
    assert "compile alone is better" in str(done.report)
    assert [step.optimization for step in done.plan.steps] == ["compile"]
    done.undo()
    assert model.delay == SLOW


@pytest.mark.parametrize("other", [FAST, SLOW])
def test_where_a_compiler_alone_is_no_better_at_the_end_what_it_replaced_comes_back(
    offering: Offering, monkeypatch: pytest.MonkeyPatch, other: float
) -> None:
    seconds = {SLOW: SLOW, FAST: FAST, FASTER: FASTER}

    def compiled(model: nn.Module) -> Variant:
        def apply(keep: bool) -> Applied:
            assert isinstance(model, Delayed)
            return Applied(setting(model, "delay", FASTER if model.delay == SLOW else SLOW))

        return Variant("whole", apply)

    def slowed(model: nn.Module) -> Sequence[Variant]:
        seconds.update({FASTER: SLOW, FAST: other})
        raise NotApplicableError("it only slows what was compiled")

    last = offer("late", stage=OptimizationStage.REUSE)
    offering(
        offer("weights", variant("fast", delay=FAST)),
        offer("compile", compiled, stage=OptimizationStage.COMPILATION),
        type(last)(last.name, last.stage, last.summary, slowed),
    )
    monkeypatch.setattr(Bench, "seconds", lambda bench, *_, **__: seconds[bench._model.delay])
    model = delayed()
    done = optimize(model, example())
    better = other == FAST
    assert outcomes(done.report)["compile whole alone"] == TrialOutcome.NOT_BETTER
    assert [step.optimization for step in done.plan.steps] == (["weights"] if better else [])
    kept = TrialOutcome.KEPT if better else TrialOutcome.NOT_BETTER
    assert outcomes(done.report)["weights fast"] == kept
    assert model.delay == (FAST if better else SLOW)
    assert done.report is not None
    assert done.report.after.seconds == (FAST if better else SLOW)


def test_what_is_kept_stays_where_a_compiler_alone_is_worse(offering: Offering) -> None:
    offering(
        offer("weights", variant("fast", delay=FASTER)),
        offer("compile", variant("whole", delay=FAST), stage=OptimizationStage.COMPILATION),
    )
    model = delayed()
    done = optimize(model, example())
    assert [step.optimization for step in done.plan.steps] == ["weights"]
    assert model.delay == FASTER
