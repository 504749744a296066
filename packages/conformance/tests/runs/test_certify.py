"""The command: what it certifies, what it refuses to understand, and what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from torchyard import child_environ
from torchyard.cli._main import cli
from torchyard_conformance import Report, Status, Subject
from torchyard_conformance._cli._certify import find_expectations
from torchyard_conformance._laws.registration.test_discovery import _BUILT_IN
from torchyard_conformance._reports._expectation import FILE

_CASE = "registration.manifest-valid"


def _run(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *program],
        env=child_environ({}),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )


def _certify(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return _run(["-m", "torchyard", "certify", *arguments], folder)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Return the kit certified by itself."""
    folder = tmp_path_factory.mktemp("kit")
    return _certify("conformance", "--profile", "core", "--json", folder=folder)


def test_the_kit_keeps_its_own_laws(smoke: subprocess.CompletedProcess[str]) -> None:
    report = Report.from_json(json.loads(smoke.stdout))
    assert smoke.returncode == 0, report.reasons
    assert report.certified
    assert set(report.mustpass) <= set(report.laws())
    assert report.laws()["registration.offers-what-it-declares"] is Status.NOT_SUPPORTED
    assert (report.plugin, report.distribution) == ("conformance", "torchyard-conformance")


def test_a_report_says_where_it_was_made_and_not_by_whom(
    smoke: subprocess.CompletedProcess[str],
) -> None:
    report = Report.from_json(json.loads(smoke.stdout))
    assert report.environment.keys() == {"system", "machine", "cpu", "cores", "python"}
    assert {"torch", "pytest", "torchyard", "torchyard-conformance"} <= report.versions.keys()
    assert str(Path.home()) not in json.dumps([dict(report.environment), dict(report.versions)])


def test_one_case_certifies_nothing_and_says_how_it_ended(tmp_path: Path) -> None:
    result = _certify("conformance", "--case", _CASE, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "1 laws run" in result.stdout
    assert "certified" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-plugin"], "plugin 'no-such-plugin': not installed; installed plugins: "),
        (["conformance", "--profile", "none"], "expected one of attention-core"),
        (["conformance", "--case", "toy.a"], "--case: expected a law of profile core"),
        (["conformance", "--expectations", "absent.toml"], "absent.toml: expected a TOML file"),
        (["conformance", "--nothing"], "No such option"),
        (["laws", "--profile", "none"], "expected one of attention-core"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_is_not_understood_ends_with_status_2(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    result = _certify(*arguments, folder=tmp_path)
    assert result.returncode == 2, result.stdout
    assert words in result.stderr
    assert not result.stdout


def test_expectations_are_found_in_the_plugins_package_or_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = '[[expected]]\nlaw = "{law}"\nreason = "r"\nlink = "l"\nexpires = 2099-01-01\n'
    package = tmp_path / "package"
    package.mkdir()
    here = tmp_path / FILE
    here.write_text(row.format(law="toy.here"))
    subject = Subject("conformance")
    monkeypatch.chdir(tmp_path)
    assert [item.law for item in find_expectations(subject, None)] == ["toy.here"]
    spec = ModuleSpec("torchyard_conformance", None, is_package=True)
    assert spec.submodule_search_locations is not None
    spec.submodule_search_locations.append(str(package))
    monkeypatch.setattr("torchyard_conformance._cli._certify.find_spec", lambda name: spec)
    (package / FILE).write_text(row.format(law="toy.shipped"))
    assert [item.law for item in find_expectations(subject, None)] == ["toy.shipped"]
    assert [item.law for item in find_expectations(subject, here)] == ["toy.here"]
    (package / FILE).unlink()
    here.unlink()
    assert find_expectations(subject, None) == ()


def test_the_laws_are_listed_with_the_profiles_in_which_each_must_pass(tmp_path: Path) -> None:
    rows = json.loads(_certify("laws", "--profile", "core", "--json", folder=tmp_path).stdout)
    found = {row["law"]: row for row in rows}
    assert "core" in found[_CASE]["mustpass"]
    assert found[_CASE]["documentation"] == "docs/plugins/laws.md#registrationmanifest-valid"
    assert _CASE in _certify("laws", folder=tmp_path).stdout


def test_help_shows_the_plugins_form_and_the_subcommands(tmp_path: Path) -> None:
    result = _certify("--help", folder=tmp_path)
    for words in ("certify PLUGIN [OPTIONS]", "--expectations", "--case LAW[CASE]", "laws"):
        assert words in result.stdout


def test_pytest_itself_runs_the_laws_and_fails_where_nothing_is_certified(tmp_path: Path) -> None:
    program = ["-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "torchyard_conformance"]
    chosen = ["--torchyard-plugin=conformance", f"--torchyard-case={_CASE}"]
    result = _run([*program, *chosen, "-q"], tmp_path)
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout
    result = _run([*program, "--torchyard-plugin=none-such"], tmp_path)
    assert result.returncode == 4
    assert "plugin 'none-such': not installed" in result.stderr


def test_the_laws_can_be_listed_without_torch_and_without_a_component() -> None:
    program = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        components = {"torch", "torchyard_attention", "torchyard_cpu", "torchyard_kernels"}
        if name.split(".")[0] in components:
            raise AssertionError(f"something imported {name}")

sys.meta_path.insert(0, Refuse())
from torchyard_conformance._law import all_laws
assert all_laws()
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_laws_know_the_commands_that_are_built_in() -> None:
    assert set(cli.commands) == _BUILT_IN
