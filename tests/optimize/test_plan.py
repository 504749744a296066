"""A plan does in another process what was kept, or says why it cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.optimize.conftest import Offering
from tests.optimize.toys import FAST, FASTER, SLOW, Delayed, example, offer, variant
from torchyard import optimize
from torchyard.optimization import (
    Optimized,
    OptimizeError,
    Plan,
    PlanError,
    PlanStep,
    apply_plan,
    read_plan,
)


def _model() -> Delayed:
    return Delayed().eval()


@pytest.fixture
def optimized(offering: Offering) -> Optimized:
    """Return a model that two optimizations are kept for."""
    offering(
        offer("weights", variant("fast", delay=FAST)),
        offer("more", variant("faster", delay=FASTER)),
    )
    return optimize(_model(), example())


def test_a_saved_plan_is_applied_without_a_trial(optimized: Optimized, tmp_path: Path) -> None:
    optimized.plan.save(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == optimized.plan
    model = _model()
    done = apply_plan(model, tmp_path / "plan.json")
    assert model.delay == FASTER
    assert done.report is None
    assert done.plan == optimized.plan
    done.undo()
    assert model.delay == SLOW


class _Wider(Delayed):
    pass


def _wider() -> nn.Module:
    model = _model()
    model.layer = nn.Linear(4, 5)
    return model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (_Wider().eval(), "model: class: expected 'tests.optimize.toys.Delayed', got"),
        (_wider().eval(), "model: tensors: expected"),
        (_model().half(), "model: tensors: expected"),
    ],
)
def test_another_model_is_refused(optimized: Optimized, model: nn.Module, words: str) -> None:
    for elsewhere in (False, True):
        with pytest.raises(PlanError, match=words):
            apply_plan(model, optimized.plan, elsewhere=elsewhere)
    assert getattr(model, "delay") == SLOW  # noqa: B009


@pytest.mark.parametrize("fact", ["torch", "processor", "processor features", "cores", "device"])
def test_another_machine_is_refused_unless_told_otherwise(optimized: Optimized, fact: str) -> None:
    other = replace(optimized.plan, machine={**optimized.plan.machine, fact: "another"})
    model = _model()
    with pytest.raises(PlanError, match=f"machine: {fact}: expected 'another', got .*elsewhere"):
        apply_plan(model, other)
    assert model.delay == SLOW
    apply_plan(model, other, elsewhere=True)
    assert model.delay == FASTER


def test_what_is_not_offered_as_it_was_is_refused_and_nothing_stays(
    optimized: Optimized, offering: Offering
) -> None:
    model = _model()
    fast = offer("weights", variant("fast", delay=FAST))
    offering(fast)
    with pytest.raises(PlanError, match=r"steps: more of plugin toy is not offered here"):
        apply_plan(model, optimized.plan)
    offering(fast, offer("more", variant("fastest", delay=FASTER)))
    with pytest.raises(PlanError, match=r"more faster: expected one of fastest"):
        apply_plan(model, optimized.plan)
    offering(fast, offer("more", variant("faster", delay=FASTER)), version="2.0")
    with pytest.raises(PlanError, match=r"expected plugin toy 1\.0, got 2\.0"):
        apply_plan(model, optimized.plan)
    assert model.delay == SLOW
    apply_plan(model, optimized.plan, elsewhere=True)
    assert model.delay == FASTER


def test_a_plan_for_memory_gives_originals_up(offering: Offering) -> None:
    offering(offer("weights", variant("small", freed=40)))
    plan = optimize(_model(), example(), goal="memory").plan
    done = apply_plan(_model(), plan)
    with pytest.raises(OptimizeError, match="gave them up"):
        done.undo()


_PLAN = Plan("latency", {"class": "a"}, {"torch": "b"}, (PlanStep("p", "1", "o", "v"),), 1.0, 0.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected JSON"),
        ("[]", "expected an object"),
        ("{}", "goal: expected a string, got nothing"),
        ('{"goal": 3}', "goal: expected a string, got 3"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=words):
        read_plan(path)


def test_a_file_of_another_schema_and_one_that_is_not_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    replace(_PLAN, schema=2).save(path)
    with pytest.raises(PlanError, match="schema: expected 1, got 2; make the plan again"):
        read_plan(path)
    with pytest.raises(PlanError, match=r"none\.json"):
        read_plan(tmp_path / "none.json")


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(field=st.sampled_from(list(Plan.__dataclass_fields__)), value=_JSON)
def test_any_other_value_in_a_file_is_read_as_it_is_or_refused(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: Any
) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    _PLAN.save(path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, field: value}))
    try:
        found = read_plan(path)
    except PlanError:
        return
    found.save(path)
    assert json.loads(path.read_text())[field] == value


def test_results_are_equal_after_undo_of_a_plan(optimized: Optimized) -> None:
    model = _model()
    expected = model(example())
    apply_plan(model, optimized.plan).undo()
    assert torch.equal(model(example()), expected)
