"""A vendor from outside of this tree: a row for its architecture, a manifest and a page of code."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from packages.core.tests.distribution import Distribution
from torchyard import Accelerator, Platform, PluginState, Registry
from torchyard._plugins.installed import installed_sources

_FILES: Final = {
    "torchyard_acme/torchyard.toml": """
        schema = 1
        name = "acme"
        summary = "Acme's accelerators: kernels in Triton"

        [requires]
        torchyard = ">=0.1.0.dev0"

        [[devices]]
        name = "acme"

        [[implements]]
        contract = "attention/1"
        module = "torchyard_acme.kernels"
        devices = ["acme"]

        [[implements]]
        contract = "topk/1"
        module = "torchyard_acme.kernels"
        devices = ["acme"]
    """,
    "torchyard_acme/kernels.py": """
        from torchyard import hookimpl
        from torchyard_triton import Architecture, Vendor, implementations

        ACME_1 = Architecture(
            "acme1", "acme", "acme1", 32, 64 * 1024, 2**20, "acme.mma", "acme.mma"
        )
        VENDOR = Vendor("acme", "acme", "acme", lambda: "acme1", others=(ACME_1,))


        @hookimpl
        def torchyard_implementations(contract):
            return implementations(contract, VENDOR)
    """,
}
_CONTRACTS: Final = {
    "attention/1": "torchyard_attention.contract",
    "topk/1": "torchyard_kernels.topk.contract",
}


_VENDOR_ON_SIMULATED: Final = 'Vendor("acme", "simulated", "acme", lambda: "simulated"'
# The same vendor's kernels on the simulated device, as if it were the vendor's.
_ON_SIMULATED: Final = {
    name: text.replace('devices = ["acme"]', 'devices = ["simulated"]')
    .replace(
        """
        [[devices]]
        name = "acme"
""",
        "",
    )
    .replace('"acme1", "acme", "acme1"', '"simulated", "acme", "simulated"')
    .replace('Vendor("acme", "acme", "acme", lambda: "acme1"', _VENDOR_ON_SIMULATED)
    for name, text in _FILES.items()
}


def _platform(architecture: str) -> Platform:
    accelerator = Accelerator("acme", architecture, "Acme One", shared_memory=64 * 1024)
    return Platform(
        system="Linux",
        machine="x86_64",
        cpu_features=frozenset(),
        cpu_cores=8,
        python="3.12.1",
        torch="2.13.0",
        devices=frozenset({"cpu", "acme"}),
        accelerators=(accelerator,),
        libraries=(("triton", "3.7.1"),),
    )


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    Distribution("torchyard-acme", "acme", "torchyard_acme", _FILES).install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return installed_sources()


def _names(contract: str, registry: Registry) -> set[str]:
    definition = importlib.import_module(_CONTRACTS[contract]).DEFINITIONS[contract]
    return {registry.decide(contract, case).name for case in definition.cases("acme")}


@pytest.mark.parametrize("contract", _CONTRACTS)
def test_its_kernels_compute_on_its_architecture_where_they_are_enlisted(
    contract: str, sources: Any
) -> None:
    environ = {"TORCHYARD_ENLIST": "acme.triton"}
    registry = Registry(sources, platform=_platform("acme1"), environ=environ)
    (plugin,) = (plugin for plugin in registry.plugins if plugin.name == "acme")
    assert plugin.state in {PluginState.DISCOVERED, PluginState.ACTIVE}, plugin.reason
    assert "acme.triton" in _names(contract, registry)
    assert "acme.triton" not in _names(
        contract, Registry(sources, platform=_platform("acme1"), environ={})
    )
    other = Registry(sources, platform=_platform("acme2"), environ=environ)
    assert "acme.triton" not in _names(contract, other)


def test_a_vendor_takes_less_than_three_hundred_lines() -> None:
    assert sum(len(text.strip().splitlines()) for text in _FILES.values()) < 60


def _torchyard(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchyard", *words, "--json"],
        env={**os.environ, "PYTHONPATH": str(folder), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.sweep
@pytest.mark.parametrize("profile", ["kernels", "smoke"])
def test_it_is_certified_as_right_when_emulated_by_tritons_interpreter(
    profile: str, tmp_path: Path
) -> None:
    Distribution("torchyard-acme", "acme", "torchyard_acme", _ON_SIMULATED).install(tmp_path)
    bundle = str(tmp_path / "acme.tgz")
    profiles = ["--profile", profile, "--profile", "emulated"]
    done = _torchyard(tmp_path, "certify", "acme", *profiles, "--bundle", bundle)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report["reasons"]
    judged = [
        result for result in report["results"] if result["case"].startswith("acme.triton@simulated")
    ]
    assert sum(result["status"] == "pass" for result in judged) > 30
    assert {result["status"] for result in report["results"]} == {"pass", "not-supported"}
    verified = json.loads(_torchyard(tmp_path, "certify", "verify", bundle).stdout)
    assert verified["report"]["certified"]
    assert verified["level"] == "right when emulated"
