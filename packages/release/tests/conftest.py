"""The foreign monorepo, and the command line as a user has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from packages.release.tests import foreign
from torchyard_release._repository._workspace import Workspace


@pytest.fixture
def orchard(tmp_path: Path) -> Path:
    """Return a foreign monorepo of this test's own."""
    return foreign.make(tmp_path / "orchard")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a foreign monorepo with a candidate that is built; tests leave it as it is."""
    root = foreign.make(tmp_path_factory.mktemp("built") / "orchard", agreed=True)
    for words in (["cut"], ["build", "--no-isolation"]):
        result = foreign.release(root, *words)
        assert result.exit_code == 0, result.output
    return root


@pytest.fixture
def workspace(orchard: Path) -> Workspace:
    """Return the foreign monorepo as the commands see it."""
    return Workspace.find(orchard)


@pytest.fixture
def release(orchard: Path) -> Callable[..., Result]:
    """Return a function that runs ``torchyard release`` in the foreign monorepo."""

    def run(*words: str) -> Result:
        return foreign.release(orchard, *words)

    return run


@pytest.fixture
def release_json(release: Callable[..., Result]) -> Callable[..., Any]:
    """Return a function that runs a command with ``--json`` and returns the document."""

    def run(*words: str, code: int = 0) -> Any:
        result = release(*words, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    return run
