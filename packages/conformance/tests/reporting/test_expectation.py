"""Expected failures are rows with a reason, a link and an end."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from torchyard_conformance import Expectation
from torchyard_conformance._reports._expectation import ExpectationError, read_expectations

_ROW = """
[[expected]]
law = "truth.a"
reason = "the kernel drops a block"
link = "issue 7"
expires = 2027-01-31
"""


def test_a_row_may_leave_out_the_case_and_write_a_day_as_toml_does(tmp_path: Path) -> None:
    path = tmp_path / "torchyard-expectations.toml"
    path.write_text(_ROW)
    [row] = read_expectations(path)
    assert (row.case, row.expires) == ("*", "2027-01-31")
    assert row.matches("truth.a", "any")
    assert not row.matches("truth.b", "any")


def test_a_case_is_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(_ROW + 'case = "mine.fast-*"\n')
    [row] = read_expectations(path)
    assert row.matches("truth.a", "mine.fast-float32")
    assert not row.matches("truth.a", "mine.slow-float32")
    assert row.name == "truth.a[mine.fast-*]"


def test_a_row_made_in_python_is_checked_as_one_of_a_file() -> None:
    fields = {"law": "a.b", "case": "*", "reason": "r", "link": "l", "expires": "1.3"}
    assert Expectation(**fields).expired(datetime.date(2027, 1, 1), "1.3")
    for name in fields:
        with pytest.raises(ValueError, match=rf"Expectation: {name}: .* not empty"):
            Expectation(**{**fields, name: ""})
    with pytest.raises(ValueError, match=r"expires: expected a day such as .*, got 'soon'"):
        Expectation(**{**fields, "expires": "soon"})


def test_a_time_of_day_is_no_day() -> None:
    row = Expectation("a.b", "*", "r", "l", "2027-01-31")
    with pytest.raises(TypeError, match=r"today: expected a datetime.date, .* call date\(\)"):
        row.expired(datetime.datetime(2027, 1, 31), "1")


@pytest.mark.parametrize(
    ("limit", "day", "version", "expired"),
    [
        ("2027-01-31", "2027-01-30", "9", False),
        ("2027-01-31", "2027-01-31", "9", True),
        ("1.3", "2099-01-01", "1.2.9", False),
        ("1.3", "2099-01-01", "1.3", True),
        ("1.3", "2026-01-01", "not a version", True),
    ],
)
def test_it_ends_on_its_day_or_in_its_release(
    limit: str, day: str, version: str, expired: bool, tmp_path: Path
) -> None:
    path = tmp_path / "e.toml"
    path.write_text(_ROW.replace("2027-01-31", f'"{limit}"'))
    [row] = read_expectations(path)
    assert row.expired(datetime.date.fromisoformat(day), version) is expired


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected \\[\\[expected\\]\\] tables and nothing else, got an empty file"),
        ("expected = 1\n", "tables and nothing else"),
        ("x = [\n", "expected a TOML file"),
        (_ROW.replace("link", "url"), r"expected\[0\]: expected the keys"),
        (_ROW.replace('"issue 7"', '""'), r"expected\[0\].link: expected a string, got ''"),
        (_ROW.replace("2027-01-31", '"soon"'), r"expected\[0\].expires: expected a day such as"),
        ("expected = [1]\n", r"expected\[0\]: expected a table, got 1"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "e.toml"
    path.write_text(text)
    with pytest.raises(ExpectationError, match=message):
        read_expectations(path)


def test_a_file_may_say_that_nothing_is_known_to_be_broken(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text("expected = []\n")
    assert read_expectations(path) == ()


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match=r"absent.toml: expected a TOML file"):
        read_expectations(tmp_path / "absent.toml")
