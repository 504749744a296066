"""A report is certified only where no reason prevents it, and lists the reasons."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from torchyard_conformance import Expectation, LawResult, Report, Status

PASSED = LawResult("truth.a", "", Status.PASS)
REPORT = Report(
    spec="1.0",
    kit_version="0.1.0.dev0",
    plugin="mine",
    distribution="torchyard-mine",
    plugin_version="1.2",
    profile="core",
    contracts=("toy/1",),
    devices=("cpu",),
    implementations=(),
    mustpass=("truth.a",),
    mustpass_digest="00",
    results=(
        PASSED,
        LawResult("truth.b", "one", Status.PASS, figures={"ratio": 1.5}),
        LawResult("truth.b", "two", Status.NOT_SUPPORTED, "no such dtype"),
    ),
    expectations=(),
    date="2026-11-21",
    environment={"system": "Linux"},
    versions={"torch": "2.13.0"},
    digests={"mine/__init__.py": "00"},
)
ROW = Expectation("truth.b", "*", "known", "issue 1", "2027-01-31")
FAILED = LawResult("truth.b", "one", Status.FAIL, "wrong", "torchyard certify", smallest="one")


def test_a_report_without_anything_against_it_is_certified() -> None:
    assert REPORT.certified
    assert REPORT.reasons == ()
    assert REPORT.laws() == {"truth.a": Status.PASS, "truth.b": Status.PASS}


def test_it_survives_json() -> None:
    full = replace(REPORT, results=(*REPORT.results, FAILED), expectations=(ROW,))
    text = json.dumps(full.to_json())
    assert Report.from_json(json.loads(text)) == full
    assert json.loads(text)["certified"] is False


def test_what_the_json_concludes_is_not_believed() -> None:
    data = replace(REPORT, results=()).to_json()
    assert not Report.from_json({**data, "certified": True, "reasons": []}).certified


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"results": ()}, "no law ran"),
        ({"mustpass": ("truth.a", "truth.c")}, "truth.c must pass, and did not run"),
        (
            {"results": (replace(PASSED, status=Status.FAIL),)},
            "truth.a must pass, and ended as fail",
        ),
        (
            {"results": (replace(PASSED, status=Status.NOT_SUPPORTED),)},
            "truth.a must pass, and ended as not-supported",
        ),
        (
            {"results": (PASSED, replace(PASSED, case="x", status=Status.UNVERIFIED))},
            "truth.a must pass, and ended as unverified",
        ),
        ({"results": (PASSED, FAILED)}, "truth.b[one] failed, and no expectation says so"),
        (
            {"expectations": (ROW,)},
            "expectation truth.b: truth.b[one] ended as pass; remove the row",
        ),
        (
            {"results": (PASSED, FAILED), "expectations": (replace(ROW, expires="2026-11-21"),)},
            "expectation truth.b expired: 2026-11-21",
        ),
        (
            {"results": (PASSED, FAILED), "expectations": (replace(ROW, expires="1.2"),)},
            "truth.b[one] failed, and no expectation says so",
        ),
        (
            {"expectations": (replace(ROW, case="three"),)},
            "expectation truth.b[three] matches nothing that ran",
        ),
        (
            {"expectations": (replace(ROW, law="truth.a"),)},
            "expectation truth.a: the law must pass, it cannot be excused",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_stands_against_it_is_said(change: dict[str, object], reason: str) -> None:
    report = replace(REPORT, **change)  # type: ignore[arg-type]
    assert not report.certified
    assert reason in report.reasons


def test_an_expected_failure_is_excused_until_it_expires() -> None:
    excused = replace(REPORT, results=(PASSED, FAILED), expectations=(ROW,))
    assert excused.certified
    assert excused.expected(FAILED) == ROW
    assert not replace(excused, date="2027-01-31").certified
    released = replace(excused, expectations=(replace(ROW, expires="1.3"),))
    assert released.certified
    assert not replace(released, plugin_version="1.3").certified


def test_one_case_decides_for_its_law() -> None:
    assert Status.of_all(frozenset({Status.PASS, Status.FAIL, Status.UNVERIFIED})) is Status.FAIL
    assert Status.of_all(frozenset({Status.PASS, Status.UNVERIFIED})) is Status.UNVERIFIED
    assert Status.of_all(frozenset({Status.PASS, Status.NOT_SUPPORTED})) is Status.PASS
    assert Status.of_all(frozenset({Status.NOT_SUPPORTED})) is Status.NOT_SUPPORTED
