"""Calls of torchyard_conformance's public functions that are right."""

from __future__ import annotations

import datetime
from typing import Any, Final

import torchyard_conformance as conformance
from tests.fuzz.harness import call_of
from tests.fuzz.kinds import FUNCTION, OTHER, REFUSED, TEXT, Kind, optional
from torchyard_conformance import Expectation

__all__ = ["CALLS"]

_WORDS: Final = Kind(lambda v: v if isinstance(v, str) else REFUSED, free=True)
_NAMES: Final = Kind(
    lambda v: v if isinstance(v, tuple | list) and all(isinstance(x, str) for x in v) else REFUSED,
    free=True,
)
_ROW: Final = {"law": "a.b", "case": "*", "reason": "r", "link": "l", "expires": "2030-01-01"}


def _law(**given: Any) -> None:
    def function() -> None:
        """A sentence.

        Why: somebody is hurt.

        Fix: do something.
        """

    conformance.law(**given)(function)


def _ended(name: str, **given: Any) -> None:
    """Call what ends a law by raising, and return where it raised what it should."""
    try:
        getattr(conformance, name)(**given)
    except (TypeError, ValueError):
        raise
    except BaseException as error:
        if not all(str(word) in str(error) for word in given.values()):
            raise


CALLS: Final = (
    call_of(
        "torchyard_conformance.law",
        {"id": "family.name", "profiles": ("core",), "cases": None},
        _law,
        profiles=_NAMES,
        cases=optional(FUNCTION),
    ),
    *(
        call_of(
            f"torchyard_conformance.{name}",
            {argument: "because"},
            lambda name=name, **given: _ended(name, **given),
            **dict[str, Any]({argument: TEXT}),
        )
        for name, argument in (
            ("not_supported", "reason"),
            ("unverified", "reason"),
            ("violated", "text"),
        )
    ),
    call_of(
        "torchyard_conformance.read_profile",
        {"name": "smoke", "spec": "1.0"},
        # As the command line and reports call it.
        says={"name": "name|profile"},
    ),
    call_of(
        "torchyard_conformance.Subject",
        {"name": "cpu", "device": "", "only": (), "quick": False},
        device=_WORDS,
        only=_NAMES,
        # One that is not installed is named with its kind.
        says={"name": "name|plugin '[^']*'"},
    ),
    call_of(
        "torchyard_conformance.Subject.implementations",
        {"contract": "topk/1", "device": "cpu"},
        lambda **given: conformance.Subject("cpu").implementations(**given),
        contract=_WORDS,
        device=_WORDS,
    ),
    call_of(
        "torchyard_conformance.Subject.absence",
        {"device": "cpu"},
        lambda device: conformance.Subject("cpu").absence(device),
        device=TEXT,
    ),
    call_of(
        "torchyard_conformance.Expectation",
        _ROW,
        law=TEXT,
        case=TEXT,
        reason=TEXT,
        link=TEXT,
    ),
    call_of(
        "torchyard_conformance.Expectation.matches",
        {"law": "a.b", "case": "c"},
        lambda **given: Expectation(**_ROW).matches(**given),
        law=_WORDS,
        case=_WORDS,
    ),
    call_of(
        "torchyard_conformance.Expectation.expired",
        {"today": datetime.date(2027, 1, 1), "version": "1.0"},
        lambda **given: Expectation(**_ROW).expired(**given),
        today=OTHER,
        version=_WORDS,
    ),
)
