"""The matrix: certificates by plugin and device, as a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from torchyard import EvidenceLevel
from torchyard_conformance._evidence._verify import Verified
from torchyard_conformance._profile import read_profile
from torchyard_conformance._reports._result import LawResult, Report
from torchyard_conformance._status import Status

_WORDS: Final = {
    Status.PASS: "pass",
    Status.FAIL: "**FAIL**",
    Status.NOT_SUPPORTED: "not supported",
    Status.UNVERIFIED: "UNVERIFIED",
}
_EXPECTED: Final = "expected failure"
# How a law of several implementations names its cases, and how one is named whose figures are
# errors over their bounds.
CASE: Final = re.compile(r"(?P<name>[a-z][\w-]*\.[\w.-]+)@(?P<device>[\w-]+)/(?P<half>[^/]+)")
COMPARES: Final = re.compile(r"\w+\.[\w-]*match[\w-]*-reference")


def matrix(certificates: Mapping[str, Verified], devices: Sequence[str]) -> str:
    """Return the page's tables: devices by plugin, implementations, laws, certificates.

    Args:
        certificates: verified bundles by the path that the page links to.
        devices: device types that have a row even where no certificate is about them.

    Raises:
        ValueError: there is no certificate: an empty matrix says nothing.
    """
    if not certificates:
        raise ValueError("matrix: expected at least one certificate, got none")
    reports = {path: certificates[path].report for path in sorted(certificates)}
    return "\n".join(
        [
            *_table(_devices(reports, devices)),
            *_titled("Implementations", _implementations(reports)),
            "",
            "## Laws",
            "",
            *_table(_laws(reports)),
            "",
            "## Certificates",
            "",
            *_table(_certificates({path: certificates[path] for path in reports})),
        ]
    )


def verdict(report: Report) -> str:
    """Return what a certificate says as a whole, in a word.

    One that only lacks what could not be tried is unverified, and never a failure or a pass; one by
    a profile that proves less than a device would has its level in the place of a pass.
    """
    if report.certified:
        return "certified" if _on_device(report) else str(_level(report))
    laws = report.laws()
    if Status.FAIL in laws.values():
        return "**FAILS**"
    lacking = {laws.get(name) for name in report.mustpass} - {Status.PASS}
    return "UNVERIFIED" if Status.UNVERIFIED in lacking else "not certified"


def _level(report: Report) -> EvidenceLevel:
    """Return the most that a report's profile proves."""
    return read_profile(report.profile, report.spec).level


def _on_device(report: Report) -> bool:
    return _level(report).rank >= EvidenceLevel.ON_DEVICE.rank


def _devices(reports: Mapping[str, Report], devices: Sequence[str]) -> Iterator[list[str]]:
    plugins = sorted({report.plugin for report in reports.values()})
    judged = {device for report in reports.values() for device in report.devices}
    yield ["device", *plugins]
    for device in [*sorted(judged), *sorted(set(devices) - judged)]:
        cells = []
        for plugin in plugins:
            found = [
                f"{verdict(report)}: [{report.profile} {report.spec}]({path})"
                for path, report in reports.items()
                if report.plugin == plugin and device in report.devices
            ]
            cells.append("<br>".join(found))
        yield [f"`{device}`", *cells]


def _implementations(reports: Mapping[str, Report]) -> Iterator[list[str]]:
    yield ["implementation", "device", "computes", "laws", "worst error over its bound"]
    for path, report in reports.items():
        found: dict[tuple[str, ...], list[LawResult]] = {}
        for result in report.results:
            if match := CASE.match(result.case):
                found.setdefault(match.groups(), []).append(result)
        for (name, device, half), results in sorted(found.items()):
            yield [
                f"[`{name}`]({path})",
                f"`{device}`",
                half,
                per_law(results),
                worst_error(results),
            ]


def per_law(results: Sequence[LawResult]) -> str:
    """Return how many laws ended how, for one implementation."""
    cases: dict[str, set[Status]] = {}
    for result in results:
        cases.setdefault(result.law, set()).add(result.status)
    return _counted(Counter(Status.of_all(frozenset(found)) for found in cases.values()))


def worst_error(results: Sequence[LawResult]) -> str:
    """Return the greatest error over its bound, where a law compared with a reference."""
    figures = [
        figure
        for result in results
        if COMPARES.fullmatch(result.law)
        for figure in result.figures.values()
        if not isinstance(figure, str)
    ]
    return f"{max(figures):.2f}" if figures else ""


def _counted(counts: Counter[Status]) -> str:
    return ", ".join(f"{counts[status]} {_WORDS[status]}" for status in Status if counts[status])


def _laws(reports: Mapping[str, Report]) -> Iterator[list[str]]:
    names = [_name(report) for report in reports.values()]
    yield [
        "law",
        *(
            f"{name}, {report.profile}" if names.count(name) > 1 or not _on_device(report) else name
            for name, report in zip(names, reports.values(), strict=True)
        ),
    ]
    for law in sorted({result.law for report in reports.values() for result in report.results}):
        yield [f"`{law}`", *(_cell(report, law) for report in reports.values())]


def _cell(report: Report, law: str) -> str:
    results = [result for result in report.results if result.law == law]
    if not results:
        return ""
    failed = [result for result in results if result.status is Status.FAIL]
    if failed and all(report.expected(result) for result in failed):
        return _EXPECTED
    counts = Counter(result.status for result in results)
    whole = Status.of_all(frozenset(counts))
    must = " (must)" if law in report.mustpass and whole is Status.PASS else ""
    # A pass of some cases is not a pass of those that nobody could try.
    return (_counted(counts) if len(counts) > 1 else _WORDS[whole]) + must


def _certificates(certificates: Mapping[str, Verified]) -> Iterator[list[str]]:
    yield ["certificate", "plugin", "laws", "on", "with", "day", "author", "sha256"]
    for path, verified in certificates.items():
        report = verified.report
        machine = " ".join(
            filter(None, (report.environment.get(key, "") for key in ("cpu", "machine")))
        )
        yield [
            f"[{path.rpartition('/')[2]}]({path})",
            f"{report.plugin} {report.plugin_version}",
            _counted(Counter(report.laws().values())),
            machine,
            f"torch {report.versions['torch']}" if "torch" in report.versions else "no torch",
            report.date,
            f"key `{verified.key[:16]}`" if verified.key else "unsigned",
            f"`{verified.digest[:16]}`",
        ]


def _name(report: Report) -> str:
    on = f" on {', '.join(report.devices)}" if report.devices else ""
    alone = f" ({', '.join(report.implementations)})" if report.implementations else ""
    return f"{report.plugin}{alone}{on}"


def _titled(title: str, rows: Iterator[list[str]]) -> list[str]:
    """Return a section; nothing where its table would be empty."""
    table = list(_table(rows))
    return ["", f"## {title}", "", *table] if len(table) > 2 else []


def _table(rows: Iterator[list[str]]) -> Iterator[str]:
    heading = next(rows)
    yield f"| {' | '.join(heading)} |"
    yield f"| {' | '.join('---' for _ in heading)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
