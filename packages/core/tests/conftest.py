"""Registries over distributions that only a test has installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from torchyard import Platform, PluginSource, Registry
from torchyard.cli._main import cli

from .distribution import MANIFEST, Distribution
from .toys import GOOD, TOY

Make = Callable[..., Registry]


@pytest.fixture
def machine() -> Platform:
    """Return a machine that no test runs on."""
    return Platform(
        system="Linux",
        machine="riscv64",
        cpu_features=frozenset({"v"}),
        cpu_cores=3,
        python="3.11.0",
        torch="2.13.0",
        devices=frozenset({"cpu", "warp"}),
    )


@pytest.fixture
def make_registry(tmp_path: Path, machine: Platform) -> Iterator[Make]:
    """Return a function that installs distributions and makes a registry of just these."""
    before = set(sys.modules)
    sys.path.insert(0, str(tmp_path))

    def make(
        *distributions: Distribution,
        environ: Mapping[str, str] | None = None,
        platform: Platform | None = machine,
    ) -> Registry:
        for distribution in distributions:
            distribution.install(tmp_path)
        sources = [
            PluginSource(item.plugin, f"{item.package}:{MANIFEST}", item.name, item.version)
            for item in distributions
        ]
        return Registry(sources, platform=platform, environ={} if environ is None else environ)

    yield make
    sys.path.remove(str(tmp_path))
    for name in set(sys.modules) - before:
        if name.startswith(("torchyard_toy", "torchyard_good", "yard_")):
            del sys.modules[name]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a site folder with the toys."""
    for distribution in (TOY, GOOD):
        distribution.install(tmp_path)
    return tmp_path


@pytest.fixture
def invoke(make_registry: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs the command in this process, on a registry of just the toys."""
    registry = make_registry(TOY, GOOD)
    monkeypatch.setattr("torchyard._registry.registry._process", [registry])

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments)

    return run
