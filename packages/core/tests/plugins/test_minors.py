"""Minors: how a contract is written with one, and an implementation says which it knows."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard import Implementation, Verdict
from torchyard._contracts.contract import parse_contract


@pytest.mark.parametrize(
    ("text", "expected"),
    [("toy/1", ("toy", 1, 0)), ("toy/1.0", ("toy", 1, 0)), ("toy/12.34", ("toy", 12, 34))],
)
def test_a_contract_may_be_written_with_a_minor(text: str, expected: tuple[str, int, int]) -> None:
    contract, minor = parse_contract(text)
    assert (contract.op, contract.version, minor) == expected


@pytest.mark.parametrize("text", ["toy/1.", "toy/1.x", "toy/1.01", "toy/1.2.3", "toy/0.1", "toy.1"])
def test_a_minor_that_is_none_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected 'op/version' or 'op/version\.minor' such as"):
        parse_contract(text)


@pytest.mark.parametrize("minor", [-1, True, "1", 1.0])
def test_an_implementation_says_its_minor_as_a_number(minor: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="minor: expected an int of at least 0"):
        Implementation("toy/1", "a.b", lambda r, p: Verdict.yes(), lambda: print, minor=minor)
