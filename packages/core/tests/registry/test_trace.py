"""A decision's trace: the same whether it is read at once, later, or in another process."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from packages.core.tests.registry.resolving import NO, YES, decide_toys, offer, outcomes
from torchyard import (
    Candidate,
    Decision,
    Implementation,
    Outcome,
    Platform,
    ReasonCode,
    Source,
    Verdict,
    require,
)
from torchyard._registry.policy import Use


@st.composite
def _situations(draw: st.DrawFn) -> dict[str, object]:
    """Names with their verdicts, a list, what is enlisted, absent plugins, and a demand."""
    names = draw(st.lists(st.sampled_from("a.x b.y c.z d.w".split()), unique=True))
    listed = draw(st.permutations(["a.x", "b.y", "e.v"]))
    demand = draw(st.sampled_from([None, "a.x", "b.y", "e.v"]))
    tuned = draw(st.sampled_from([None, "b.y", "e.v"]))
    return {
        "verdicts": {name: draw(st.sampled_from([YES, NO])) for name in names},
        "order": tuple(listed[: draw(st.integers(0, 3))]),
        "enlist": frozenset(draw(st.sets(st.sampled_from(["c.z", "e.v"])))),
        "absent": tuple(
            Candidate(f"{plugin}.*", Outcome.REFUSED, Verdict.no(ReasonCode.BLOCKED, "blocked"))
            for plugin in sorted(draw(st.sets(st.sampled_from("ef"))))
        ),
        "use": None if demand is None else Use(demand, Source.CONTEXT),
        "tuned": () if tuned is None else (("cpu", tuned),),
    }


@given(_situations())
def test_a_decision_is_the_same_whether_its_trace_is_read_at_once_or_later(
    situation: dict[str, object],
) -> None:
    asked: list[str] = []

    def decision() -> Decision:
        given: dict[str, object] = dict(situation)
        verdicts: dict[str, Verdict] = given.pop("verdicts")  # type: ignore[assignment]

        def offer(name: str, verdict: Verdict) -> Implementation:
            def supports(request: object, platform: Platform) -> Verdict:
                asked.append(name)
                return verdict

            return Implementation("toy/1", name, supports, lambda: print)

        return decide_toys(*(offer(*item) for item in verdicts.items()), **given)  # type: ignore[arg-type]

    found = decision()
    before = list(asked)
    # Everything that is known without the trace.
    name, source, skipped = found.name, found.source, found.skipped()
    if found.chosen is not None:
        assert asked == before
        assert found.considered[-1].outcome is Outcome.CHOSEN
    trace = found.trace
    # As `torchyard explain` has it: each once, the chosen one at its place.
    assert trace[: len(found.considered)] == found.considered
    names = [candidate.name for candidate in trace]
    assert len(names) == len(set(names)) == len({*names, *situation["verdicts"]})  # type: ignore[misc]
    assert [item.name for item in trace if item.outcome is Outcome.CHOSEN] == [name] * bool(name)
    at_once = decision()
    assert at_once.trace == trace
    assert (at_once.name, at_once.source, at_once.skipped()) == (name, source, skipped)
    assert found.trace is trace


def test_a_call_asks_no_candidate_behind_the_chosen_one() -> None:
    asked = []

    def supports(name: str) -> Callable[[object, Platform], Verdict]:
        def judge(request: object, platform: Platform) -> Verdict:
            asked.append(name)
            return NO if name == "a.x" else YES

        return judge

    offers = [
        Implementation("toy/1", name, supports(name), lambda: print)
        for name in ("a.x", "b.y", "c.z")
    ]
    decision = decide_toys(*offers, order=("a.x", "b.y", "c.z"))
    assert decision.skipped()[0].name == "a.x"
    assert require(decision).name == "b.y"
    assert asked == ["a.x", "b.y"]
    assert outcomes(decision) == {"a.x": "refused", "b.y": "chosen", "c.z": "not needed"}
    assert asked == ["a.x", "b.y", "c.z"]
    decision.render()
    assert asked == ["a.x", "b.y", "c.z"]


def test_decisions_compare_by_their_whole_trace() -> None:
    first, second, refusing = offer("a.x"), offer("b.y"), offer("b.y", NO)
    one = decide_toys(first, second, order=("a.x", "b.y"))
    again = decide_toys(first, second, order=("a.x", "b.y"))
    other = decide_toys(first, refusing, order=("a.x", "b.y"))
    assert one == again
    assert hash(one) == hash(again)
    # The same choice, which went without another verdict.
    assert one.chosen is other.chosen
    assert one != other
    assert one != "a.x"


def test_a_decision_can_be_sent_to_another_process_before_its_trace_was_read() -> None:
    offers = [
        Implementation("toy/1", name, partial(_judged, verdict), _load)
        for name, verdict in (("a.x", NO), ("b.y", YES), ("c.z", NO))
    ]
    sent = pickle.loads(pickle.dumps(decide_toys(*offers, order=("a.x", "b.y", "c.z"))))
    assert sent.name == "b.y"
    assert outcomes(sent) == {"a.x": "refused", "b.y": "chosen", "c.z": "refused"}


def _judged(verdict: Verdict, request: object, platform: Platform) -> Verdict:
    return verdict


def _load() -> Callable[..., object]:
    return print
