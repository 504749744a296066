"""Every public function refuses what does not fit by name, or takes it for what it stands for."""

from __future__ import annotations

import mmap
import random
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from tests.fuzz.catalogue import CALLS, prepare
from tests.fuzz.child import outcomes
from tests.fuzz.harness import Call, Outcome, Trial, trials

# How many of each call's trials are made where there is no time for all.
_FEW = 2


def _faults(made: list[Trial], found: list[Outcome]) -> list[str]:
    return [
        f"{outcome.kind}: {trial}: {outcome.text}"
        for trial, outcome in zip(made, found, strict=True)
        if outcome.kind not in ("clear", "right")
    ]


def test_some_bad_arguments_of_each_function_are_named_or_right() -> None:
    made = []
    for call in CALLS:
        every = list(trials(call))
        made += random.Random(call.name).sample(every, min(_FEW, len(every)))
    assert len(made) > len(CALLS) / 2
    faults = _faults(made, list(outcomes(made, prepare)))
    assert not faults, "\n".join(faults)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_memory_of_the_parent_is_not_counted_as_the_calls() -> None:
    chosen = [next(trials(call)) for call in CALLS if "artifacts.save" in call.name]
    with mmap.mmap(-1, 5 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        found = list(outcomes(chosen, prepare))
    assert [outcome.kind for outcome in found] == ["clear"]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
@pytest.mark.sweep
def test_every_bad_argument_is_named_or_right(call: Call) -> None:
    made = list(trials(call))
    found = list(outcomes(made, _with_good_call(call)))
    print(f"{call.name}: {dict(Counter(outcome.kind for outcome in found))}")
    faults = _faults(made, found)
    assert not faults, "\n".join(faults)


def _with_good_call(call: Call) -> Callable[[], None]:
    def first() -> None:
        prepare()
        call.run(**call.make())

    return first
