"""The resolver: order, demands and enlisting, on any machine written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packages.core.tests.registry.resolving import MACHINE, NO, decide_toys, offer, outcomes
from torchyard import (
    Candidate,
    Decision,
    Implementation,
    Outcome,
    PolicyError,
    ReasonCode,
    Source,
    UnsupportedError,
    Verdict,
    require,
)
from torchyard._registry.policy import Use
from torchyard._registry.resolver import rank


def test_the_first_of_the_list_that_supports_the_request_is_chosen() -> None:
    decision = decide_toys(
        offer("c.z"), offer("b.y"), offer("a.x", NO), order=("a.x", "b.y", "c.z")
    )
    assert decision.name == "b.y"
    assert decision.source is Source.ORDER
    assert outcomes(decision) == {"a.x": "refused", "b.y": "chosen", "c.z": "not needed"}
    assert [candidate.name for candidate in decision.skipped()] == ["a.x"]


@given(st.permutations(["a.x", "b.y", "c.z", "d.w"]), st.sets(st.sampled_from(["b.y", "d.w"])))
def test_the_order_of_offers_changes_nothing(names: list[str], refusing: set[str]) -> None:
    def all_of(ordered: list[str]) -> Decision:
        offers = [
            offer(name, NO if name in refusing else Verdict.yes(), after=("a.x",))
            for name in ordered
        ]
        return decide_toys(*offers, order=("b.y", "a.x"), enlist=frozenset({"c.z", "d.w"}))

    shuffled, plain = all_of(names), all_of(sorted(names))
    assert shuffled.name == plain.name
    assert shuffled.trace == plain.trace


def test_an_implementation_that_no_list_names_is_not_chosen() -> None:
    decision = decide_toys(offer("new.fast"), order=())
    assert decision.chosen is None
    candidate = decision.trace[0]
    assert (candidate.outcome, candidate.verdict.code) == (
        Outcome.NOT_LISTED,
        ReasonCode.NOT_LISTED,
    )
    assert "TORCHYARD_ENLIST=new.fast" in candidate.verdict.hint


def test_enlisting_lets_it_be_chosen_where_it_says() -> None:
    offers = (offer("a.x"), offer("new.fast", before=("a.x",)))
    decision = decide_toys(*offers, order=("a.x",), enlist=frozenset({"new.fast"}))
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
    offers = [offer("n.n", before=before, after=after)]
    assert rank(("a.x", "b.y", "r.r"), offers, frozenset({"n.n"})) == expected


def test_enlisted_ones_may_name_one_another() -> None:
    offers = [offer("a.first", after=("z.last",)), offer("z.last", before=("r.r",))]
    assert rank(("r.r",), offers, frozenset({"a.first", "z.last"})) == (
        "z.last",
        "a.first",
        "r.r",
    )


def test_a_circle_is_an_error_that_names_its_members() -> None:
    offers = [offer("a.a", before=("b.b",)), offer("b.b", before=("a.a",))]
    with pytest.raises(PolicyError, match=r"a\.a, b\.b: .* in a circle"):
        rank(("r.r",), offers, frozenset({"a.a", "b.b"}))


def test_a_place_that_does_not_exist_is_an_error() -> None:
    offers = [offer("n.n", before=("a.x",), after=("b.y",))]
    with pytest.raises(PolicyError, match=r"n\.n: is before .* cannot satisfy"):
        rank(("a.x", "b.y"), offers, frozenset({"n.n"}))


def test_a_demand_never_falls_back() -> None:
    decision = decide_toys(
        offer("a.x", NO), offer("b.y"), order=("a.x", "b.y"), use=Use("a.x", Source.ARGUMENT)
    )
    assert decision.chosen is None
    assert outcomes(decision) == {"a.x": "refused", "b.y": "not asked"}
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
    decision = decide_toys(offer("a.x"), order=("a.x",), use=Use("gone.z", source))
    assert decision.chosen is None
    assert decision.trace[0].verdict.code is ReasonCode.MISSING
    assert words in decision.trace[0].verdict.text


def test_an_unlisted_implementation_may_be_demanded() -> None:
    decision = decide_toys(offer("new.fast"), order=(), use=Use("new.fast", Source.CONTEXT))
    assert decision.name == "new.fast"


def test_a_locked_bucket_is_a_demand() -> None:
    locked = (("cpu", "b.y"), ("other", "a.x"))
    decision = decide_toys(
        offer("a.x"), offer("b.y"), order=("a.x", "b.y"), locked=locked, lock_path="lock.json"
    )
    assert (decision.name, decision.source) == ("b.y", Source.LOCK)
    gone = decide_toys(offer("a.x"), order=("a.x",), locked=locked, lock_path="lock.json")
    assert gone.chosen is None
    assert "asked for by the lock file lock.json" in gone.trace[0].verdict.text


def test_a_demand_is_stronger_than_the_lock() -> None:
    decision = decide_toys(
        offer("a.x"),
        offer("b.y"),
        order=("a.x",),
        use=Use("a.x", Source.ENVIRONMENT),
        locked=(("cpu", "b.y"),),
    )
    assert (decision.name, decision.source) == ("a.x", Source.ENVIRONMENT)


def test_a_listed_one_whose_plugin_is_broken_is_skipped_where_it_stands() -> None:
    broken = Candidate("a.*", Outcome.REFUSED, Verdict.no(ReasonCode.PLUGIN, "plugin a is failed"))
    decision = decide_toys(offer("b.y"), order=("a.x", "b.y"), absent=(broken,))
    assert outcomes(decision) == {"a.x": "refused", "b.y": "chosen"}
    assert decision.skipped()[0].verdict.text == "plugin a is failed"
    demanded = decide_toys(
        offer("b.y"), order=("b.y",), absent=(broken,), use=Use("a.x", Source.ARGUMENT)
    )
    assert demanded.trace[0].verdict.text == "plugin a is failed"


def test_a_broken_plugin_that_no_list_names_is_shown_last() -> None:
    broken = Candidate("a.*", Outcome.REFUSED, Verdict.no(ReasonCode.PLUGIN, "plugin a is failed"))
    decision = decide_toys(offer("b.y"), order=("b.y",), absent=(broken,))
    assert list(outcomes(decision)) == ["b.y", "a.*"]
    assert decision.skipped() == ()


def test_an_enlisted_one_whose_plugin_is_broken_is_skipped_and_said() -> None:
    broken = Candidate("a.*", Outcome.REFUSED, Verdict.no(ReasonCode.PLUGIN, "plugin a is failed"))
    enlist = frozenset({"a.x", "elsewhere.y"})
    decision = decide_toys(offer("b.y"), order=("b.y",), absent=(broken,), enlist=enlist)
    assert outcomes(decision) == {"a.x": "refused", "b.y": "chosen"}
    assert [candidate.name for candidate in decision.skipped()] == ["a.x"]


def test_a_listed_one_that_is_not_installed_is_skipped_and_said() -> None:
    decision = decide_toys(offer("b.y"), order=("a.x", "b.y"))
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
    decision = decide_toys(broken, offer("b.y"), order=("a.x", "b.y"))
    assert decision.name == "b.y"
    assert decision.trace[0].verdict.code is ReasonCode.SUPPORTS_RAISED
    assert words in decision.trace[0].verdict.text


def test_supports_gets_the_request_and_the_platform() -> None:
    seen = []

    def supports(request: object, platform: object) -> Verdict:
        seen.append((request, platform))
        return Verdict.yes()

    decision = decide_toys(Implementation("toy/1", "a.x", supports, lambda: print), order=("a.x",))
    assert seen == [(decision.request, MACHINE)]


def test_a_decision_reads_as_text_and_as_json() -> None:
    hinted = Verdict.no(ReasonCode.ISA, "needs avx512f", "use another machine")
    decision = decide_toys(offer("a.x", hinted), offer("b.y"), order=("a.x", "b.y"))
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
        ({"compilations": ()}, TypeError, "compilations: expected a function, got an empty tuple"),
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
