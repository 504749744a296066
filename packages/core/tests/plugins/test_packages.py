"""What is absent is named with the package that has it, and the table of packages is true."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

from torchyard import Registry, UnknownContractError
from torchyard._plugins.packages import COMMANDS, DEVICES, IMPLEMENTED_ELSEWHERE, OPS
from torchyard.cli._main import cli

_ROOT = Path(__file__).parents[4]


def _manifests() -> Mapping[str, Mapping[str, Any]]:
    found = {}
    for path in sorted(_ROOT.glob("p*/*/src/*/torchyard.toml")):
        data = tomllib.loads(path.read_text())
        found[data["name"]] = data
    assert len(found) >= 8
    return found


def _ops(rows: list[dict[str, Any]]) -> set[str]:
    return {row["contract"].partition("/")[0] for row in rows}


def test_the_table_says_what_the_manifests_do() -> None:
    manifests = _manifests()
    assert {
        row["name"]: name for name, data in manifests.items() for row in data.get("commands", [])
    } == COMMANDS
    defined = {op: name for name, data in manifests.items() for op in _ops(data.get("defines", []))}
    assert defined == OPS
    orphans = {
        op for op, name in OPS.items() if op not in _ops(manifests[name].get("implements", []))
    }
    assert orphans == set(IMPLEMENTED_ELSEWHERE)
    for op, name in IMPLEMENTED_ELSEWHERE.items():
        assert op in _ops(manifests[name]["implements"])
    owned = {
        row["name"]
        for data in manifests.values()
        for row in data.get("devices", [])
        if "slot" not in row
    }
    assert owned == DEVICES


def test_every_package_is_an_extra_of_torchyard() -> None:
    project = tomllib.loads((_ROOT / "packages/core/pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for package in {*COMMANDS.values(), *OPS.values(), *IMPLEMENTED_ELSEWHERE.values(), *DEVICES}:
        # A train pins them otherwise than its repository does.
        assert Requirement(extras[package][0]).name == f"torchyard-{package}"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_an_absent_packages_command_names_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchyard.cli._commands.registry", lambda: Registry([]))
    result = CliRunner().invoke(cli, [command])
    assert result.exit_code == 2
    package = COMMANDS[command]
    assert (
        f"command {command!r} is torchyard-{package}'s, which is not installed; "
        f"pip install torchyard[{package}]" in result.output
    )


@pytest.mark.parametrize("op", sorted(OPS))
def test_an_absent_components_contract_names_its_package(op: str) -> None:
    registry = Registry([])
    for text in (op, f"{op}/1"):
        with pytest.raises(UnknownContractError, match=rf"pip install torchyard\[{OPS[op]}\]"):
            registry.contract(text)
    with pytest.raises(UnknownContractError, match="no installed component defines it; known"):
        registry.contract("knots")
