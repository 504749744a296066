"""Prefix reuse is right or refused, whatever the architecture."""

from __future__ import annotations

from collections import Counter

import pytest
from transformers.models.auto import modeling_auto

from tests.models.architectures import Outcome
from tests.models.reusing import reused


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("Cohere2ForCausalLM", Outcome.RIGHT),
        # Chooses which keys are attended to, by keys of its own.
        ("DeepseekV32ForCausalLM", Outcome.RIGHT),
        # Its tokens see those after them.
        ("BertLMHeadModel", Outcome.REFUSED),
        # Its layers keep more than keys and values.
        ("DeepseekV4ForCausalLM", Outcome.REFUSED),
    ],
)
def test_an_architecture_is_right_or_refused(name: str, outcome: Outcome) -> None:
    result = reused(name)
    assert result.outcome is outcome, result.detail


@pytest.mark.sweep
def test_no_architecture_is_wrong_or_ends_in_an_unclear_error() -> None:
    found = Counter[Outcome]()
    for name in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        result = reused(name if isinstance(name, str) else name[0])
        found[result.outcome] += 1
        print(f"{name}: {result.outcome}: {result.detail}")
    print(dict(found))
    assert found[Outcome.RIGHT] > 100
    assert not {Outcome.WRONG, Outcome.UNCLEAR, Outcome.TOLD} & found.keys()
