"""An artifact that many tests read."""

from __future__ import annotations

import pytest

from packages.export.tests.models.small import factory
from torchyard_export import Artifact, export


@pytest.fixture(scope="session")
def artifact() -> Artifact:
    """Return a small artifact; it is not changed."""
    return export(**factory())


@pytest.fixture(scope="session")
def packed(artifact: Artifact) -> bytes:
    """Return the same as a file's bytes."""
    return artifact.to_bytes()
