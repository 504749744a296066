"""A report as JUnit XML, which test dashboards read."""

from __future__ import annotations

from xml.etree import ElementTree

from torchyard_conformance._reports._result import LawResult, Report
from torchyard_conformance._status import Status


def junit(report: Report) -> str:
    """Return the report as one JUnit suite; what was not judged is skipped, with its status."""
    counts = dict.fromkeys(Status, 0)
    for result in report.results:
        counts[result.status] += 1
    suite = ElementTree.Element(
        "testsuite",
        name=_printable(f"{report.plugin} {report.plugin_version}: {report.profile} {report.spec}"),
        tests=str(len(report.results)),
        failures=str(counts[Status.FAIL]),
        errors="0",
        skipped=str(counts[Status.NOT_SUPPORTED] + counts[Status.UNVERIFIED]),
        time=f"{sum(result.seconds for result in report.results):.3f}",
    )
    for result in report.results:
        _add(suite, result)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ElementTree.Element, result: LawResult) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_printable(result.law),
        name=_printable(result.case or result.law),
        time=f"{result.seconds:.3f}",
    )
    if result.status is Status.FAIL:
        failure = ElementTree.SubElement(case, "failure", message=_printable(result.text))
        failure.text = _printable(f"{result.smallest}\n{result.reproduce}")
    elif result.status is not Status.PASS:
        words = f"{result.status}: {_printable(result.text)}"
        ElementTree.SubElement(case, "skipped", message=words)


def _printable(text: str) -> str:
    """Return the text without what XML cannot hold, such as a terminal's escapes."""
    return "".join(c if c in "\t\n" or (c >= " " and not _odd(c)) else "?" for c in text)


def _odd(character: str) -> bool:
    return "\ud800" <= character <= "\udfff" or character in "\ufffe\uffff"
