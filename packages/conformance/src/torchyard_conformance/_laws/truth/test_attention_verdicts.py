"""Attention: verdicts are correct, pure and cheap."""

from __future__ import annotations

from collections.abc import Callable

from torchyard_conformance import law
from torchyard_conformance._attention._trial import trials
from torchyard_conformance._trials._trial import Trial

Record = Callable[[str, float | str], None]


@law(
    "truth.attention-accepts-something",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-accepts-something"),
)
def test_it_accepts_some_calls(case: Trial, record: Record) -> None:
    """It accepts some of the calls that the component's grid is made of.

    The figures say how many it accepts, and how many it refuses with each code.

    Why: every other law of attention is about calls that are accepted; an implementation that
    accepts none would pass them all.

    Fix: look at the codes among the figures: they say which of its limits refuses everything.
    A limit on a field that is a rounded size, such as kv_length, is the usual one.
    """
    case.hold(record)


@law(
    "truth.attention-refuses-with-a-reason",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-refuses-with-a-reason"),
)
def test_a_refusal_has_a_reason(case: Trial, record: Record) -> None:
    """What it refuses, it refuses with one of its own codes and a text.

    The whole grid is asked, and dtypes that no sum of products is defined for. An exception
    inside of supports(), an answer that is no Verdict, or a code that is the registry's to give
    is no reason.

    Why: the text is all that a user sees of an implementation that was not chosen; a supports()
    that raises looks like a bug of theirs.

    Fix: return Verdict.no(code, text) on every path: the limit that was met, and what the
    request asked for. docs/reference/reason-codes.md lists the codes.
    """
    case.hold(record)


@law(
    "truth.attention-refuses-when-demanded",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-refuses-when-demanded"),
)
def test_a_refusal_stands_when_demanded(case: Trial, record: Record) -> None:
    """What it refuses is an error when it is demanded by name, with the same code.

    Each refused request is resolved with the implementation demanded, as
    flex_attention(implementation=...) does.

    Why: a demand that quietly runs something else, or computes what it said it cannot, is a
    wrong measurement or a wrong model.

    Fix: let supports() depend on nothing but the request and the platform, so that the
    registry hears the same answer as the kit.
    """
    case.hold(record)


@law(
    "truth.attention-verdict-is-pure",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-verdict-is-pure"),
)
def test_a_verdict_is_pure(case: Trial, record: Record) -> None:
    """The same request gets the same verdict, and asking changes nothing.

    All requests are asked twice, the second time backwards; torch's and the process's settings
    are compared before and after.

    Why: decisions are cached and written to locks; a verdict that depends on when it is asked
    makes them lies.

    Fix: keep state, random numbers, environment and clocks out of supports(); read settings
    once, in torchyard_implementations().
    """
    case.hold(record)


@law(
    "truth.attention-verdict-is-cheap",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-verdict-is-cheap"),
    alone=True,
)
def test_a_verdict_is_cheap(case: Trial, record: Record) -> None:
    """A verdict takes microseconds, not milliseconds.

    The figures hold the median and the greatest time; the median may be 1000 microseconds,
    which leaves room for slow machines.

    Why: every candidate is asked when a new shape comes along, on the way of the first call.

    Fix: move imports, probes and compilations to load(), and keep what does not depend on the
    request.
    """
    case.hold(record)


@law(
    "truth.attention-verdict-of-fake-tensors",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-verdict-of-fake-tensors"),
)
def test_fake_tensors_get_the_same_verdict(case: Trial, record: Record) -> None:
    """Calls of fake tensors get the verdicts that calls of real ones get.

    The grid's calls are made fake, and asked for while torch's fake mode is on.

    Why: torch.compile and torch.export decide on fake tensors; a decision that differs from the
    eager one is a graph that computes something else.

    Fix: decide from the request alone; creating tensors inside of supports() is what usually
    differs.
    """
    case.hold(record)
