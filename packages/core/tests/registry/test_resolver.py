"""The resolver: order, demands and enlisting, on any machine written by hand."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard import (
    Candidate,
    Decision,
    Implementation,
    Outcome,
    Platform,
    Policy,
    PolicyError,
    ReasonCode,
    Source,
    UnsupportedError,
    Verdict,
    decide,
    require,
)
from torchyard._registry.policy import Use
from torchyard._registry.resolver import rank

_YES = Verdict.yes()
_NO = Verdict.no(ReasonCode.DTYPE, "float32 only")
_MACHINE = Platform("Linux", "x86_64", frozenset({"avx2"}), 4, "3.11", None, frozenset({"cpu"}))


@dataclass(frozen=True, slots=True)
class Ask:
    device: str = "cpu"
    size: int = 1

    def bucket(self) -> str:
        return self.device


def _offer(
    name: str,
    verdict: Verdict = _YES,
    *,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
) -> Implementation:
    return Implementation(
        "toy/1", name, lambda request, platform: verdict, lambda: print, before, after
    )


def _decide(*offers: Implementation, order: tuple[str, ...], **policy: object) -> Decision:
    absent = policy.pop("absent", ())
    return decide(
        "toy/1",
        Ask(),
        _MACHINE,
        offers,
        order,
        policy=Policy(**policy),  # type: ignore[arg-type]
        absent=absent,  # type: ignore[arg-type]
    )


def _outcomes(decision: Decision) -> dict[str, str]:
    return {candidate.name: str(candidate.outcome) for candidate in decision.trace}


def test_the_first_of_the_list_that_supports_the_request_is_chosen() -> None:
    decision = _decide(
        _offer("c.z"), _offer("b.y"), _offer("a.x", _NO), order=("a.x", "b.y", "c.z")
    )
    assert decision.name == "b.y"
    assert decision.source is Source.ORDER
    assert _outcomes(decision) == {"a.x": "refused", "b.y": "chosen", "c.z": "not needed"}
    assert [candidate.name for candidate in decision.skipped()] == ["a.x"]


@given(st.permutations(["a.x", "b.y", "c.z", "d.w"]), st.sets(st.sampled_from(["b.y", "d.w"])))
def test_the_order_of_offers_changes_nothing(names: list[str], refusing: set[str]) -> None:
    def all_of(ordered: list[str]) -> Decision:
        offers = [
            _offer(name, _NO if name in refusing else Verdict.yes(), after=("a.x",))
            for name in ordered
        ]
        return _decide(*offers, order=("b.y", "a.x"), enlist=frozenset({"c.z", "d.w"}))

    shuffled, plain = all_of(names), all_of(sorted(names))
    assert shuffled.name == plain.name
    assert shuffled.trace == plain.trace


def test_an_implementation_that_no_list_names_is_not_chosen() -> None:
    decision = _decide(_offer("new.fast"), order=())
    assert decision.chosen is None
    candidate = decision.trace[0]
    assert (candidate.outcome, candidate.verdict.code) == (
        Outcome.NOT_LISTED,
        ReasonCode.NOT_LISTED,
    )
    assert "TORCHYARD_ENLIST=new.fast" in candidate.verdict.hint


def test_enlisting_lets_it_be_chosen_where_it_says() -> None:
    offers = (_offer("a.x"), _offer("new.fast", before=("a.x",)))
    decision = _decide(*offers, order=("a.x",), enlist=frozenset({"new.fast"}))
    assert decision.name == "new.fast"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), (), ("a.x", "b.y", "n.n", "r.r")),
        (("b.y",), (), ("a.x", "n.n", "b.y", "r.r")),
        (("b.y", "a.x"), (), ("n.n", "a.x", "b.y", "r.r")),
        ((), ("a.x",), ("a.x", "n.n", "b.y", "r.r")),
        ((), ("r.r", "a.x"), ("a.x", "b.y", "r.r", "n.n")),
        (("r.r",), ("a.x",), ("a.x", "b.y", "n.n", "r.r")),
        (("gone.z",), (), ("a.x", "b.y", "n.n", "r.r")),
    ],
)
def test_before_and_after_place_an_enlisted_one(
    before: tuple[str, ...], after: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    offers = [_offer("n.n", before=before, after=after)]
    assert rank(("a.x", "b.y", "r.r"), offers, frozenset({"n.n"})) == expected


def test_enlisted_ones_may_name_one_another() -> None:
    offers = [_offer("a.first", after=("z.last",)), _offer("z.last", before=("r.r",))]
    assert rank(("r.r",), offers, frozenset({"a.first", "z.last"})) == (
        "z.last",
        "a.first",
        "r.r",
    )


def test_a_circle_is_an_error_that_names_its_members() -> None:
    offers = [_offer("a.a", before=("b.b",)), _offer("b.b", before=("a.a",))]
    with pytest.raises(PolicyError, match=r"a\.a, b\.b: .* in a circle"):
        rank(("r.r",), offers, frozenset({"a.a", "b.b"}))


def test_a_place_that_does_not_exist_is_an_error() -> None:
    offers = [_offer("n.n", before=("a.x",), after=("b.y",))]
    with pytest.raises(PolicyError, match=r"n\.n: is before .* cannot satisfy"):
        rank(("a.x", "b.y"), offers, frozenset({"n.n"}))


def test_a_demand_never_falls_back() -> None:
    decision = _decide(
        _offer("a.x", _NO), _offer("b.y"), order=("a.x", "b.y"), use=Use("a.x", Source.ARGUMENT)
    )
    assert decision.chosen is None
    assert _outcomes(decision) == {"a.x": "refused", "b.y": "not asked"}
    with pytest.raises(UnsupportedError) as caught:
        require(decision)
    assert caught.value.decision is decision
    for words in ("a.x", "E_DTYPE: float32 only", "b.y", "not asked"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Source.ARGUMENT, "asked for by the call's argument"),
        (Source.CONTEXT, "asked for by torchyard.use"),
        (Source.ENVIRONMENT, "asked for by TORCHYARD_USE"),
    ],
)
def test_a_demand_for_what_nobody_offers_says_who_asked(source: Source, words: str) -> None:
    decision = _decide(_offer("a.x"), order=("a.x",), use=Use("gone.z", source))
    assert decision.chosen is None
    assert decision.trace[0].verdict.code is ReasonCode.MISSING
    assert words in decision.trace[0].verdict.text


def test_an_unlisted_implementation_may_be_demanded() -> None:
    decision = _decide(_offer("new.fast"), order=(), use=Use("new.fast", Source.CONTEXT))
    assert decision.name == "new.fast"


def test_a_locked_bucket_is_a_demand() -> None:
    locked = (("cpu", "b.y"), ("other", "a.x"))
    decision = _decide(
        _offer("a.x"), _offer("b.y"), order=("a.x", "b.y"), locked=locked, lock_path="lock.json"
    )
    assert (decision.name, decision.source) == ("b.y", Source.LOCK)
    gone = _decide(_offer("a.x"), order=("a.x",), locked=locked, lock_path="lock.json")
    assert gone.chosen is None
    assert "asked for by the lock file lock.json" in gone.trace[0].verdict.text


def test_a_demand_is_stronger_than_the_lock() -> None:
    decision = _decide(
        _offer("a.x"),
        _offer("b.y"),
        order=("a.x",),
        use=Use("a.x", Source.ENVIRONMENT),
        locked=(("cpu", "b.y"),),
    )
    assert (decision.name, decision.source) == ("a.x", Source.ENVIRONMENT)


def test_a_listed_one_whose_plugin_is_broken_is_skipped_where_it_stands() -> None:
    broken = Candidate("a.*", Outcome.REFUSED, Verdict.no(ReasonCode.PLUGIN, "plugin a is failed"))
    decision = _decide(_offer("b.y"), order=("a.x", "b.y"), absent=(broken,))
    assert _outcomes(decision) == {"a.x": "refused", "b.y": "chosen"}
    assert decision.skipped()[0].verdict.text == "plugin a is failed"
    demanded = _decide(
        _offer("b.y"), order=("b.y",), absent=(broken,), use=Use("a.x", Source.ARGUMENT)
    )
    assert demanded.trace[0].verdict.text == "plugin a is failed"


def test_a_broken_plugin_that_no_list_names_is_shown_last() -> None:
    broken = Candidate("a.*", Outcome.REFUSED, Verdict.no(ReasonCode.PLUGIN, "plugin a is failed"))
    decision = _decide(_offer("b.y"), order=("b.y",), absent=(broken,))
    assert list(_outcomes(decision)) == ["b.y", "a.*"]
    assert decision.skipped() == ()


def test_an_enlisted_one_whose_plugin_is_broken_is_skipped_and_said() -> None:
    broken = Candidate("a.*", Outcome.REFUSED, Verdict.no(ReasonCode.PLUGIN, "plugin a is failed"))
    enlist = frozenset({"a.x", "elsewhere.y"})
    decision = _decide(_offer("b.y"), order=("b.y",), absent=(broken,), enlist=enlist)
    assert _outcomes(decision) == {"a.x": "refused", "b.y": "chosen"}
    assert [candidate.name for candidate in decision.skipped()] == ["a.x"]


def test_a_listed_one_that_is_not_installed_is_skipped_and_said() -> None:
    decision = _decide(_offer("b.y"), order=("a.x", "b.y"))
    assert decision.trace[0].verdict.code is ReasonCode.MISSING
    assert "install the distribution of plugin 'a'" in decision.trace[0].verdict.hint


def _raise(error: BaseException) -> Callable[..., Verdict]:
    def supports(request: object, platform: object) -> Verdict:
        raise error

    return supports


class _Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("supports", "words"),
    [
        (_raise(ZeroDivisionError("one by zero")), "raised ZeroDivisionError: one by zero"),
        (_raise(SystemExit(3)), "raised SystemExit: 3"),
        (_raise(_Speechless()), "raised _Speechless: (its message cannot be shown)"),
        (lambda request, platform: True, "must return a Verdict, got bool"),
    ],
)
def test_supports_that_misbehaves_is_a_refusal(
    supports: Callable[..., Verdict], words: str
) -> None:
    broken = Implementation("toy/1", "a.x", supports, lambda: print)
    decision = _decide(broken, _offer("b.y"), order=("a.x", "b.y"))
    assert decision.name == "b.y"
    assert decision.trace[0].verdict.code is ReasonCode.SUPPORTS_RAISED
    assert words in decision.trace[0].verdict.text


def test_supports_gets_the_request_and_the_platform() -> None:
    seen = []

    def supports(request: object, platform: object) -> Verdict:
        seen.append((request, platform))
        return Verdict.yes()

    decision = _decide(Implementation("toy/1", "a.x", supports, lambda: print), order=("a.x",))
    assert seen == [(decision.request, _MACHINE)]


def test_a_decision_reads_as_text_and_as_json() -> None:
    hinted = Verdict.no(ReasonCode.ISA, "needs avx512f", "use another machine")
    decision = _decide(_offer("a.x", hinted), _offer("b.y"), order=("a.x", "b.y"))
    text = decision.render()
    assert text.splitlines()[0] == "toy/1 on cpu: b.y (decided by order)"
    assert "E_ISA: needs avx512f" in text
    assert "hint: use another machine" in text
    data = decision.to_json()
    assert data["chosen"] == "b.y"
    assert data["request"] == {"device": "cpu", "size": 1}
    assert data["trace"][0]["code"] == "E_ISA"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"name": "fast"}, ValueError, "expected '<plugin>.<implementation>', got 'fast'"),
        ({"contract": "toy"}, ValueError, "expected 'op/version'"),
        ({"load": None}, TypeError, "load: expected a function, got None"),
        ({"before": "a.x"}, TypeError, "before: expected a tuple of names, got 'a.x'"),
        ({"claims": {"deterministic"}}, TypeError, "claims: expected a frozenset of deterministic"),
        ({"claims": frozenset({"fast"})}, ValueError, "batch-invariant, got ['fast']"),
    ],
)
def test_an_implementation_is_checked_when_it_is_made(
    arguments: dict[str, object], error: type[Exception], words: str
) -> None:
    good = {"contract": "toy/1", "name": "a.x", "supports": print, "load": print}
    with pytest.raises(error) as caught:
        Implementation(**{**good, **arguments})  # type: ignore[arg-type]
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "arguments", [(True, ReasonCode.DTYPE, "x"), (False, None, "x"), (False, ReasonCode.DTYPE, "")]
)
def test_a_verdict_has_a_code_and_a_text_exactly_where_it_refuses(
    arguments: tuple[bool, ReasonCode | None, str],
) -> None:
    with pytest.raises(ValueError, match="Verdict"):
        Verdict(*arguments)


@st.composite
def _situations(draw: st.DrawFn) -> dict[str, object]:
    """Names with their verdicts, a list, what is enlisted, absent plugins, and a demand."""
    names = draw(st.lists(st.sampled_from("a.x b.y c.z d.w".split()), unique=True))
    listed = draw(st.permutations(["a.x", "b.y", "e.v"]))
    demand = draw(st.sampled_from([None, "a.x", "b.y", "e.v"]))
    tuned = draw(st.sampled_from([None, "b.y", "e.v"]))
    return {
        "verdicts": {name: draw(st.sampled_from([_YES, _NO])) for name in names},
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

        return _decide(*(offer(*item) for item in verdicts.items()), **given)  # type: ignore[arg-type]

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
            return _NO if name == "a.x" else _YES

        return judge

    offers = [
        Implementation("toy/1", name, supports(name), lambda: print)
        for name in ("a.x", "b.y", "c.z")
    ]
    decision = _decide(*offers, order=("a.x", "b.y", "c.z"))
    assert decision.skipped()[0].name == "a.x"
    assert require(decision).name == "b.y"
    assert asked == ["a.x", "b.y"]
    assert _outcomes(decision) == {"a.x": "refused", "b.y": "chosen", "c.z": "not needed"}
    assert asked == ["a.x", "b.y", "c.z"]
    decision.render()
    assert asked == ["a.x", "b.y", "c.z"]


def test_decisions_compare_by_their_whole_trace() -> None:
    first, second, refusing = _offer("a.x"), _offer("b.y"), _offer("b.y", _NO)
    one = _decide(first, second, order=("a.x", "b.y"))
    again = _decide(first, second, order=("a.x", "b.y"))
    other = _decide(first, refusing, order=("a.x", "b.y"))
    assert one == again
    assert hash(one) == hash(again)
    # The same choice, which went without another verdict.
    assert one.chosen is other.chosen
    assert one != other
    assert one != "a.x"


def test_a_decision_can_be_sent_to_another_process_before_its_trace_was_read() -> None:
    offers = [
        Implementation("toy/1", name, partial(_judged, verdict), _load)
        for name, verdict in (("a.x", _NO), ("b.y", _YES), ("c.z", _NO))
    ]
    sent = pickle.loads(pickle.dumps(_decide(*offers, order=("a.x", "b.y", "c.z"))))
    assert sent.name == "b.y"
    assert _outcomes(sent) == {"a.x": "refused", "b.y": "chosen", "c.z": "refused"}


def _judged(verdict: Verdict, request: object, platform: Platform) -> Verdict:
    return verdict


def _load() -> Callable[..., object]:
    return print
