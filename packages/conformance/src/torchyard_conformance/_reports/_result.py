"""Results of each case of each law, and the report made of them."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from torchyard.evidence.documents import structure
from torchyard_conformance._reports._expectation import Expectation
from torchyard_conformance._status import Status


@dataclass(frozen=True, slots=True)
class LawResult:
    """How one case of one law ended.

    Attributes:
        law: the law's id.
        case: the case's id; empty for a law without cases.
        status: how it ended.
        text: what was expected and what came, or why it was not tried; empty for a pass.
        reproduce: a command that runs this case alone.
        seconds: how long it took.
        figures: what the law measured: error ratios, microseconds, and what else it names.
        smallest: the smallest case that shows a failure; empty where it passed.
    """

    law: str
    case: str
    status: Status
    text: str = ""
    reproduce: str = ""
    seconds: float = 0.0
    figures: Mapping[str, float | str] = field(default_factory=dict)
    smallest: str = ""

    @property
    def name(self) -> str:
        """``law`` or ``law[case]``, as ``--case`` takes it."""
        return f"{self.law}[{self.case}]" if self.case else self.law

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON-ready data."""
        return {
            **{item.name: getattr(self, item.name) for item in dataclasses.fields(self)},
            "status": str(self.status),
            "figures": dict(self.figures),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read what :meth:`to_json` wrote; DocumentError where it is not."""
        return structure(data, cls, "result")


@dataclass(frozen=True, slots=True)
class Report:
    """All results of a run, and what they are results of.

    Attributes:
        spec: the version of the laws and of the lists of those that must pass.
        kit_version: the kit's.
        plugin: the plugin's name.
        distribution: the distribution that announces it.
        plugin_version: that distribution's version.
        profile: the profiles, sorted and joined by ``+``.
        contracts: the contracts that the plugin implements, which decide what must pass.
        devices: the device types that the plugin was judged on.
        implementations: those that the run was narrowed to; empty: all of the plugin's.
        mustpass: the laws that must pass.
        mustpass_digest: sha256, in hexadecimal, of the profiles' lists; see ``Profile.digest``.
        results: one per case of each law.
        expectations: the failures that the plugin's author expects.
        date: the day of the run, in UTC, as ``2026-12-31``.
        environment: the machine, in words.
        versions: the version of each distribution that took part.
        digests: sha256, in hexadecimal, of each file of the plugin's distribution.
    """

    spec: str
    kit_version: str
    plugin: str
    distribution: str
    plugin_version: str
    profile: str
    contracts: tuple[str, ...]
    devices: tuple[str, ...]
    implementations: tuple[str, ...]
    mustpass: tuple[str, ...]
    mustpass_digest: str
    results: tuple[LawResult, ...]
    expectations: tuple[Expectation, ...]
    date: str
    environment: Mapping[str, str]
    versions: Mapping[str, str]
    digests: Mapping[str, str]

    @property
    def certified(self) -> bool:
        """Whether there is no reason against a certificate."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason against a certificate, as text."""
        if not self.results:
            return ("no law ran",)
        return (*self._lacking(), *self._unexpected(), *self._outdated())

    def laws(self) -> dict[str, Status]:
        """Return how each law ended, over its cases."""
        cases: dict[str, set[Status]] = {}
        for result in self.results:
            cases.setdefault(result.law, set()).add(result.status)
        return {name: Status.of_all(frozenset(found)) for name, found in sorted(cases.items())}

    def expected(self, result: LawResult) -> Expectation | None:
        """Return the row that expects a result's failure and is not out of date."""
        for row in self.expectations:
            if row.matches(result.law, result.case) and not self._expired(row):
                return row
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-ready data; what it concludes is added, and never read."""
        data = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        for name, value in data.items():
            if isinstance(value, Mapping):
                data[name] = dict(value)
            elif isinstance(value, tuple):
                data[name] = list(value)
        return {
            **data,
            "results": [result.to_json() for result in self.results],
            "expectations": [row.to_json() for row in self.expectations],
            "certified": self.certified,
            "reasons": list(self.reasons),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read what :meth:`to_json` wrote; DocumentError where it is not."""
        return structure(data, cls, "", ignore_unknown=True)

    def _lacking(self) -> list[str]:
        """Return the laws that must pass and did not, as text."""
        laws = self.laws()
        reasons = []
        for name in self.mustpass:
            status = laws.get(name)
            if status is None:
                reasons.append(f"{name} must pass, and did not run")
            elif status is not Status.PASS:
                reasons.append(f"{name} must pass, and ended as {status}")
        return reasons

    def _unexpected(self) -> list[str]:
        """Return the failures of other laws that nobody expects."""
        return [
            f"{result.name} failed, and no expectation says so"
            for result in self.results
            if result.status is Status.FAIL
            and result.law not in self.mustpass
            and self.expected(result) is None
        ]

    def _outdated(self) -> list[str]:
        """Return what is wrong with the expectations: they are as strict as the laws."""
        reasons = []
        for row in self.expectations:
            matched = [item for item in self.results if row.matches(item.law, item.case)]
            if row.law in self.mustpass:
                reasons.append(f"expectation {row.name}: the law must pass, it cannot be excused")
            elif self._expired(row):
                reasons.append(f"expectation {row.name} expired: {row.expires}")
            elif not matched:
                reasons.append(f"expectation {row.name} matches nothing that ran")
            reasons += [
                f"expectation {row.name}: {item.name} ended as {item.status}; remove the row"
                for item in matched
                if item.status is not Status.FAIL
            ]
        return reasons

    def _expired(self, row: Expectation) -> bool:
        return row.expired(datetime.date.fromisoformat(self.date), self.plugin_version)
