"""All packages move in lockstep: one version, pinned between siblings."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from tests.architecture.tree import PACKAGES, ROOT, Package

_VERSION = PACKAGES[0].project["version"]
_SIBLINGS = {package.project["name"] for package in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.import_name)
def test_version_is_the_trains(package: Package) -> None:
    assert package.project["version"] == _VERSION


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.import_name)
def test_siblings_are_required_in_the_same_version(package: Package) -> None:
    extras = package.project.get("optional-dependencies", {})
    lines = [*package.project.get("dependencies", []), *(x for e in extras.values() for x in e)]
    for requirement in map(Requirement, lines):
        if requirement.name in _SIBLINGS:
            assert str(requirement.specifier) == f"=={_VERSION}", str(requirement)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.import_name)
def test_version_written_in_the_sources_is_the_same(package: Package) -> None:
    written = ROOT / package.folder / "src" / package.import_name / "_version.py"
    if written.is_file():
        assert re.findall(r'"(\d[^"]*)"', written.read_text()) == [_VERSION]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.import_name)
def test_a_package_is_described_typed_and_licensed(package: Package) -> None:
    folder = ROOT / package.folder
    assert package.project["license"] == "BSD-3-Clause"
    assert package.project["requires-python"] == ">=3.11"
    assert (folder / package.project["readme"]).is_file()
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (folder / "src" / package.import_name / "py.typed").is_file()
