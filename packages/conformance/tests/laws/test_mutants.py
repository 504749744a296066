"""Every mutant is caught by the law meant for it, by no other, and its twin is certified."""

from __future__ import annotations

import pytest

from packages.conformance.tests.mutants.distribution import Environment
from packages.conformance.tests.mutants.registration import REGISTRATION
from packages.conformance.tests.mutants.table import MUTANTS, Judged, judge_all
from torchyard_conformance._law import all_laws
from torchyard_conformance._profile import read_profile


@pytest.fixture(scope="module")
def judged() -> dict[str, Judged]:
    """Return what became of each mutant."""
    return {item.mutant.name: item for item in judge_all(MUTANTS)}


@pytest.mark.sweep
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_its_law_catches_it_and_no_other_does(name: str, judged: dict[str, Judged]) -> None:
    found = judged[name]
    assert list(found.broken) == [found.mutant.law], found.broken
    assert found.broken[found.mutant.law], "the law does not say what it found"


@pytest.mark.sweep
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_its_twin_is_well(name: str, judged: dict[str, Judged]) -> None:
    found = judged[name]
    assert not found.twin
    assert found.certified


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert len(REGISTRATION) >= 10


def test_every_law_of_registration_that_a_plugin_can_break_has_a_mutant() -> None:
    laws = {law.id for law in all_laws() if law.family == "registration"}
    # A plugin that is switched off and runs all the same was imported by something else than the
    # registry, which registration.discovery-imports-nothing is for.
    assert laws - {mutant.law for mutant in REGISTRATION} == {"registration.switched-off"}
    assert {mutant.law for mutant in MUTANTS} <= {law.id for law in all_laws()}


@pytest.mark.sweep
def test_a_failure_names_the_law_its_meaning_and_a_line_that_shows_it_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    mutant = next(item for item in REGISTRATION if item.name == "misspelt")
    environment = Environment.make(tmp_path_factory.mktemp("venv"), mutant.broken)
    again = f"torchyard certify misspelt --case {mutant.law} --profile core"
    result = environment.run("-m", *again.split())
    assert result.returncode == 1, result.stderr
    law = next(item for item in all_laws() if item.id == mutant.law)
    for words in (
        f"FAILED {mutant.law}",
        "expected names that it offers (misspelt.count), got misspelt.cuont",
        law.summary,
        law.fix,
        law.anchor,
        again,
    ):
        assert words in result.stdout
    assert read_profile("core").applies(law)
