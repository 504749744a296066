"""Levels of evidence: what certificates prove of features, by the ladder of the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from torchyard import Evidence, EvidenceLevel
from torchyard_conformance._evidence._matrix import CASE, COMPARES, per_law, worst_error
from torchyard_conformance._evidence._verify import Verified
from torchyard_conformance._profile import read_profile
from torchyard_conformance._reports._execution import EXECUTION
from torchyard_conformance._reports._result import LawResult, Report
from torchyard_conformance._status import Status

__all__ = ["level_of", "proven"]


@dataclass(frozen=True, slots=True)
class _Cases:
    """The cases of laws that try a feature.

    Attributes:
        halves: what is computed, as the cases' names say it; of each a law must have passed that
            compares results with the reference.
        implementation: the name behind the plugin's; empty for any.
    """

    halves: tuple[str, ...]
    implementation: str = ""


# Features that the kit's laws try. Of all others no certificate says anything.
_FEATURES: Final[Mapping[str, _Cases]] = {
    "attention.flex_attention": _Cases(("forward", "backward")),
    "kernels.foreach_map": _Cases(("pointwise",)),
    "kernels.linear": _Cases(("linear",)),
    "kernels.quantised": _Cases(("linear",), "quantised"),
    "kernels.recurrent": _Cases(("recurrent",)),
    "kernels.topk": _Cases(("topk",)),
}


def level_of(report: Report, simulated: Iterable[str] = ()) -> EvidenceLevel:
    """Return what a report proves of what it certifies.

    Args:
        report: of a run of the laws.
        simulated: device types that stand for hardware; of a report that says how it was executed
            this is known without.
    """
    if not report.certified:
        return EvidenceLevel.DECLARED
    emulated = read_profile(report.profile, report.spec).emulated
    if emulated or report.environment.get(EXECUTION) or set(report.devices) & set(simulated):
        return EvidenceLevel.EMULATED
    return EvidenceLevel.ON_DEVICE


def proven(certificates: Mapping[str, Verified], simulated: Iterable[str]) -> tuple[Evidence, ...]:
    """Return the best evidence that certificates hold, one row per feature and device, sorted.

    Args:
        certificates: verified bundles by the path that a row names.
        simulated: as of :func:`level_of`.
    """
    best: dict[tuple[str, str], tuple[object, Evidence]] = {}
    known = frozenset(simulated)
    for path, verified in certificates.items():
        for row in _rows(path, verified, known):
            # Of two that prove as much, the certificate of the plugin that owns the device.
            order = (row.level.rank, verified.report.plugin == row.device, path)
            before = best.get((row.feature, row.device))
            if before is None or order > before[0]:  # type: ignore[operator]
                best[row.feature, row.device] = order, row
    return tuple(row for _, (_, row) in sorted(best.items(), key=lambda item: item[0]))


def _rows(path: str, verified: Verified, simulated: frozenset[str]) -> Iterator[Evidence]:
    report = verified.report
    level = level_of(report, simulated)
    if level is EvidenceLevel.DECLARED:
        return
    for feature, cases in _FEATURES.items():
        for device in report.devices:
            results = list(_of(report, device, cases))
            # Laws that compare nothing with the reference hold for code that is wrong, too.
            passed = {
                half
                for half, result in results
                if result.status is Status.PASS and COMPARES.fullmatch(result.law)
            }
            if not passed >= set(cases.halves):
                continue
            found = [result for _, result in results]
            error = worst_error(found)
            yield Evidence(
                feature=feature,
                device=device,
                level=level,
                date=report.date,
                tool=f"torchyard-conformance {report.kit_version}, profile {report.profile} "
                f"{report.spec}, plugin {report.plugin}",
                figures=f"laws: {per_law(found)}"
                + (f"; worst error {error} of its bound" if error else ""),
                bundle=path,
                digest=verified.digest,
            )


def _of(report: Report, device: str, cases: _Cases) -> Iterator[tuple[str, LawResult]]:
    for result in report.results:
        match = CASE.match(result.case)
        if match is None or match["device"] != device or match["half"] not in cases.halves:
            continue
        name = match["name"].partition(".")[2]
        if not cases.implementation or name == cases.implementation:
            yield match["half"], result
