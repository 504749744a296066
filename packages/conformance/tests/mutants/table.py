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


def _certify(profile: str, distribution: Distribution) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment.make(Path(folder, "venv"), distribution)
        status, report = environment.certify(distribution.plugin, "--profile", profile)
    assert (status == 0) == report.certified
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
