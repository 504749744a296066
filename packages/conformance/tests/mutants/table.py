"""The table of mutants, and what became of each of them."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from torchyard_conformance import Report, Status

from .distribution import Distribution, Environment
from .mutant import Mutant
from .registration import REGISTRATION

MUTANTS: tuple[Mutant, ...] = (*REGISTRATION,)

# Each starts interpreters one after the other, so two keep two cores busy.
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a mutant and of its twin.

    Attributes:
        mutant: the mutant.
        broken: the laws that it broke, with what was said.
        twin: the laws that its twin broke.
        certified: whether the twin's plugin is certified, or the twin as one of many broke nothing.
    """

    mutant: Mutant
    broken: dict[str, str]
    twin: dict[str, str]
    certified: bool

    @property
    def caught(self) -> bool:
        """Whether the law meant for it caught it, no other did, and the twin is well."""
        return list(self.broken) == [self.mutant.law] and self.certified and not self.twin


def judge_all(mutants: tuple[Mutant, ...]) -> tuple[Judged, ...]:
    """Certify every mutant and twin by the command, each distribution once."""
    jobs = {
        (item.profile, distribution): None
        for item in mutants
        for distribution in (item.broken, item.healthy)
    }
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        reports = dict(zip(jobs, pool.map(lambda job: _certify(*job), jobs), strict=True))
    return tuple(_judged(item, reports) for item in mutants)


def judge_alone(mutants: tuple[Mutant, ...]) -> tuple[Judged, ...]:
    """Hold every mutant and twin to the law meant for the mutant, and to no other.

    A twin counts as certified where it keeps the law.
    """
    jobs = {
        (item.profile, distribution, item.law): None
        for item in mutants
        for distribution in (item.broken, item.healthy)
    }
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        reports = dict(zip(jobs, pool.map(lambda job: _certify(*job), jobs), strict=True))
    judged = []
    for item in mutants:
        broken, healthy = (
            reports[item.profile, distribution, item.law]
            for distribution in (item.broken, item.healthy)
        )
        twin = _broken(healthy, item.twin)
        kept = healthy.laws()[item.law] is Status.PASS
        judged.append(Judged(item, _broken(broken, item.implementation), twin, kept))
    return tuple(judged)


def _certify(profile: str, distribution: Distribution, law: str = "") -> Report:
    words = ["--profile", profile, *(["--case", law] if law else [])]
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment.make(Path(folder, "venv"), distribution)
        status, report = environment.certify(distribution.plugin, *words)
    assert law or (status == 0) == report.certified
    return report


def _judged(mutant: Mutant, reports: dict[tuple[str, Distribution], Report]) -> Judged:
    healthy = reports[mutant.profile, mutant.healthy]
    twin = _broken(healthy, mutant.twin)
    return Judged(
        mutant,
        _broken(reports[mutant.profile, mutant.broken], mutant.implementation),
        twin,
        not twin if mutant.twin else healthy.certified,
    )


def _broken(report: Report, implementation: str) -> dict[str, str]:
    """Return the laws that were broken, by one implementation or by any."""
    return {
        result.law: result.text
        for result in report.results
        if result.status is Status.FAIL
        and (not implementation or f"{result.case}-".startswith(f"{implementation}-"))
    }
