"""A trace is replayed on each policy."""

from __future__ import annotations

import pytest

from torchyard_cache import chat_trace, prompt_trace, simulate


def test_what_fits_is_found_by_every_policy() -> None:
    trace = [[1] * 65, [1] * 65, [2] * 65]
    for replay in simulate(trace, budget=10):
        assert (replay.tokens, replay.tokens_saved, replay.evictions) == (195, 64, 0)


def test_traces_repeat_and_share_beginnings() -> None:
    assert list(prompt_trace(5)) == list(prompt_trace(5))
    turns = list(chat_trace(3, turns=4))
    assert len(turns) == 12
    assert sum(other[: len(turns[0])] == turns[0] for other in turns) == 4


def test_a_policy_that_minds_cost_saves_more_of_it_where_memory_is_short() -> None:
    replays = {r.policy: r for r in simulate(prompt_trace(300), budget=200)}
    assert replays["gdsf"].cost_saved > replays["lru"].cost_saved
    assert simulate(prompt_trace(300), budget=200)[0].cost_saved == max(
        replay.cost_saved for replay in replays.values()
    )


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="simulate: budget"):
        simulate([], budget=0)
    with pytest.raises(ValueError, match="simulate: policies"):
        simulate([], budget=1, policies=["x"])
    with pytest.raises(TypeError, match=r"simulate: trace\[0\]\[1\]"):
        simulate([[1, "x"]], budget=1)  # type: ignore[list-item]
