"""Maps the outcome of a test to the outcome of its law."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from torchyard_conformance._outcome import NotSupported, Unverified, Violated
from torchyard_conformance._reports._result import LawResult
from torchyard_conformance._status import Status

_LONGEST: Final = 2000


def judge(
    law: str,
    case: str,
    excinfo: pytest.ExceptionInfo[BaseException] | None,
    report: pytest.TestReport,
    *,
    reproduce: str,
    seconds: float,
    figures: Mapping[str, float | str],
) -> LawResult:
    """Return the result of a case, and have pytest's report say the same.

    A law says itself that it is not supported or unverified; a test that merely skips could hide
    what must pass, and fails.
    """
    status, text = _ended(excinfo)
    smallest = ""
    if status is Status.FAIL:
        report.outcome = "failed"
        error = excinfo.value if excinfo is not None else None
        smallest = (error.smallest if isinstance(error, Violated) else "") or case
    elif status is not Status.PASS:
        report.outcome = "skipped"
        path, line, _ = report.location
        report.longrepr = (path, (line or 0) + 1, f"{status}: {text}")
    return LawResult(
        law=law,
        case=case,
        status=status,
        text=text,
        reproduce=reproduce if status is Status.FAIL else "",
        seconds=round(seconds, 6),
        figures=dict(figures),
        smallest=smallest,
    )


def _ended(excinfo: pytest.ExceptionInfo[BaseException] | None) -> tuple[Status, str]:
    if excinfo is None:
        return Status.PASS, ""
    error = excinfo.value
    if isinstance(error, NotSupported):
        return Status.NOT_SUPPORTED, str(error)
    if isinstance(error, Unverified):
        return Status.UNVERIFIED, str(error)
    if isinstance(error, pytest.skip.Exception):
        return Status.FAIL, f"the law skipped, which it may not: {error}"
    if isinstance(error, AssertionError):
        # What pytest adds to an assertion's own words is for the kit's authors.
        words = str(error).partition("\nassert ")[0]
        return Status.FAIL, words[:_LONGEST] or "an assertion without words"
    return Status.FAIL, f"raised {excinfo.exconly()}"[:_LONGEST]
