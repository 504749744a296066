"""The matrix says what certificates say: nothing is unknown and green."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from torchyard_conformance import LawResult, Report, Status
from torchyard_conformance._evidence._bundle import bundle
from torchyard_conformance._evidence._matrix import matrix, verdict
from torchyard_conformance._evidence._verify import Verified, verify
from torchyard_conformance._reports._expectation import Expectation

from .reports import certified_report, failed_report


def _with(report: Report, status: Status, text: str = "why") -> Report:
    """Return the report with its first law, which must pass, ended in another way."""
    first = dataclasses.replace(report.results[0], status=status, text=text)
    return dataclasses.replace(report, results=(first, *report.results[1:]))


def _certificates(**reports: Report) -> dict[str, Verified]:
    return {f"certificates/{name}.tgz": verify(bundle(report)) for name, report in reports.items()}


def _rows(page: str, title: str = "") -> dict[str, list[str]]:
    part = page.partition(f"## {title}\n")[2] if title else page
    lines = part.partition("\n## ")[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in cells if len(row) > 1}


def test_a_device_that_no_certificate_is_about_is_blank() -> None:
    page = matrix(_certificates(yard=certified_report()), ["cpu", "cuda", "mps"])
    rows = _rows(page)
    assert rows["device"] == ["yard"]
    assert rows["`cpu`"] == ["certified: [core 1.0](certificates/yard.tgz)"]
    assert rows["`cuda`"] == rows["`mps`"] == [""]


@pytest.mark.parametrize(
    ("report", "word"),
    [
        (certified_report(), "certified"),
        (failed_report(), "**FAILS**"),
        (_with(certified_report(), Status.UNVERIFIED), "UNVERIFIED"),
        (_with(certified_report(), Status.NOT_SUPPORTED), "not certified"),
        (_with(_with(certified_report(), Status.UNVERIFIED), Status.FAIL), "**FAILS**"),
    ],
)
def test_what_could_not_be_tried_is_neither_a_pass_nor_a_failure(report: Report, word: str) -> None:
    assert verdict(report) == word
    assert f"| {word}: [core 1.0]" in matrix(_certificates(yard=report), [])


def test_each_certificate_has_its_place() -> None:
    page = matrix(
        _certificates(
            one=certified_report(plugin="one", devices=("cpu", "warp")),
            two=certified_report(plugin="two", devices=("warp",), implementations=("two.fast",)),
            again=failed_report(),
        ),
        [],
    )
    rows = _rows(page)
    assert rows["device"] == ["one", "two", "yard"]
    assert rows["`warp`"][:2] == [
        "certified: [core 1.0](certificates/one.tgz)",
        "certified: [core 1.0](certificates/two.tgz)",
    ]
    assert rows["`cpu`"][1] == ""
    assert _rows(page, "Laws")["law"] == [
        "yard on cpu",
        "one on cpu, warp",
        "two (two.fast) on warp",
    ]


def test_a_law_that_did_not_run_is_blank_and_mixed_cases_are_counted() -> None:
    report = certified_report()
    more = dataclasses.replace(
        report, plugin="more", results=(*report.results, LawResult("zoo.tame", "", Status.PASS))
    )
    rows = _rows(matrix(_certificates(yard=report, more=more), []), "Laws")
    assert rows["`zoo.tame`"] == ["pass", ""]
    assert rows["`extra.fast`"] == ["1 pass, 1 UNVERIFIED"] * 2
    assert rows["`extra.paged`"] == ["not supported"] * 2
    assert rows[f"`{report.mustpass[0]}`"] == ["pass (must)"] * 2


def test_an_implementation_has_a_row_per_device_and_the_worst_of_its_errors() -> None:
    cases: list[tuple[str, str, Status, dict[str, float | str]]] = [
        ("truth.matches-reference", "yard.fast@cpu/forward/a", Status.PASS, {"out": 0.25}),
        ("truth.matches-reference", "yard.fast@cpu/forward/b", Status.PASS, {"out": 0.5, "x": "y"}),
        ("truth.matches-reference", "yard.fast@cpu/forward/c", Status.NOT_SUPPORTED, {}),
        ("truth.cheap", "yard.fast@cpu/forward", Status.PASS, {"microseconds": 9.0}),
        ("truth.cheap", "yard.fast@cpu/backward", Status.PASS, {"microseconds": 9.0}),
        ("truth.matches-reference", "yard.fast@warp/forward/a", Status.UNVERIFIED, {}),
    ]
    report = certified_report()
    more = [LawResult(law, case, status, figures=found) for law, case, status, found in cases]
    page = matrix(
        _certificates(yard=dataclasses.replace(report, results=(*report.results, *more))), []
    )
    lines = page.partition("## Implementations")[2].partition("## Laws")[0].strip().splitlines()
    name = "[`yard.fast`](certificates/yard.tgz)"
    assert lines[2:] == [
        f"| {name} | `cpu` | backward | 1 pass |  |",
        f"| {name} | `cpu` | forward | 2 pass | 0.50 |",
        f"| {name} | `warp` | forward | 1 UNVERIFIED |  |",
    ]
    assert "## Implementations" not in matrix(_certificates(yard=report), [])


def test_an_expected_failure_is_called_one() -> None:
    report = certified_report()
    failed = LawResult("zoo.tame", "cpu", Status.FAIL, "bites")
    row = Expectation("zoo.tame", "*", "it bites", "https://example.org/1", "2030-01-01")
    known = dataclasses.replace(report, results=(*report.results, failed), expectations=(row,))
    rows: Any = _rows(matrix(_certificates(yard=known), []), "Laws")
    assert rows["`zoo.tame`"] == ["expected failure"]
    assert verdict(known) == "certified"


def test_a_certificate_is_listed_with_what_finds_it_again() -> None:
    certificates = _certificates(yard=certified_report())
    [(path, verified)] = certificates.items()
    rows = _rows(matrix(certificates, []), "Certificates")
    cells = rows[f"[yard.tgz]({path})"]
    assert f"`{verified.digest[:16]}`" in cells
    assert "yard 1.2" in cells
    assert "2026-11-21" in cells
    assert "unsigned" in cells


def test_an_empty_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least one certificate, got none"):
        matrix({}, ["cpu"])
