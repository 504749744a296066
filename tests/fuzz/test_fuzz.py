"""Every public function refuses what does not fit by name, or takes it for what it stands for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from tests.fuzz import collectives_calls, kernels_calls
from tests.fuzz.harness import Call, Trial, trials, tried

_MODULES = (kernels_calls, collectives_calls)
_CALLS = [call for module in _MODULES for call in module.CALLS]
# How many of each call's trials are made where there is no time for all.
_FEW = 4


@pytest.fixture(scope="module", autouse=True)
def _group() -> Iterator[None]:
    collectives_calls.prepare()
    yield
    dist.destroy_process_group()


def _judge(made: list[Trial]) -> None:
    outcomes = [(trial, tried(trial)) for trial in made]
    counts = Counter(outcome.kind for _, outcome in outcomes)
    print(f"{made[0].call.name}: {dict(counts)}")
    bad = [f"{trial}: {o.kind}: {o.text}" for trial, o in outcomes if o.kind in ("raw", "wrong")]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("call", _CALLS, ids=lambda call: call.name)
def test_some_bad_arguments_are_named_or_right(call: Call) -> None:
    call.run(**call.make())
    made = list(trials(call))
    _judge(random.Random(call.name).sample(made, min(_FEW, len(made))))


@pytest.mark.sweep
@pytest.mark.parametrize("call", _CALLS, ids=lambda call: call.name)
def test_every_bad_argument_is_named_or_right(call: Call) -> None:
    _judge(list(trials(call)))
