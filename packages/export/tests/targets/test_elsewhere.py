"""What the tests of accelerators call, on the CPU: artifacts run in another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages.export.tests.programs.elsewhere import MODELS, run_elsewhere


# Two processes, and a compiler.
@pytest.mark.sweep
@pytest.mark.parametrize("target", ["pt2", "aotinductor_native"])
@pytest.mark.parametrize("name", MODELS)
def test_an_artifact_computes_the_model_in_another_process(
    name: str, target: str, tmp_path: Path
) -> None:
    versions = run_elsewhere(name, target, "cpu", tmp_path)
    assert "device" not in versions
