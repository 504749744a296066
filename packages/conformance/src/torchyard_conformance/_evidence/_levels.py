"""Levels of evidence: what certificates prove of features, by the ladder of the core."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


# Laws that compare nothing with the reference hold for code that is wrong, too; where nothing can
# compute it, that it compiles is all there is to prove.
_COMPILES: Final = re.compile(r"compilation\.kernels-compile")

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
    most = read_profile(report.profile, report.spec).level
    emulated = report.environment.get(EXECUTION) or set(report.devices) & set(simulated)
    shown = EvidenceLevel.EMULATED if emulated else EvidenceLevel.ON_DEVICE
    return min(most, shown, key=lambda level: level.rank)


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
            proves = _COMPILES if level is EvidenceLevel.COMPILES else COMPARES
            passed = {
                half
                for half, result in results
                if result.status is Status.PASS and proves.fullmatch(result.law)
            }
            if not passed >= set(cases.halves):
                continue
            found = [result for _, result in results]
            yield Evidence(
                feature=feature,
                device=device,
                level=level,
                date=report.date,
                tool=f"torchyard-conformance {report.kit_version}, profile {report.profile} "
                f"{report.spec}, plugin {report.plugin}",
                figures=_compiled(found) if proves is _COMPILES else _compared(found),
                bundle=path,
                digest=verified.digest,
            )


def _compiled(results: Sequence[LawResult]) -> str:
    """Return how many kernels compiled, and for what: a case is one of them."""
    places = [result.case.split("/") for result in results if _COMPILES.fullmatch(result.law)]
    return f"{len(places)} kernels, compiled for {', '.join(sorted({of[2] for of in places}))}"


def _compared(results: Sequence[LawResult]) -> str:
    error = worst_error(results)
    return f"laws: {per_law(results)}" + (f"; worst error {error} of its bound" if error else "")


def _of(report: Report, device: str, cases: _Cases) -> Iterator[tuple[str, LawResult]]:
    for result in report.results:
        match = CASE.match(result.case)
        if match is None or match["device"] != device or match["half"] not in cases.halves:
            continue
        name = match["name"].partition(".")[2]
        if not cases.implementation or name == cases.implementation:
            yield match["half"], result
