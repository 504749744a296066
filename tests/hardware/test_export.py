"""Programs exported on an accelerator compute in another process what the model does in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from packages.export.tests.programs.elsewhere import MODELS, run_elsewhere
from torchyard import probe_platform, with_accelerators
from torchyard_export.contract import CONTRACT, ExportRequest
from torchyard_export.targets import torchyard_implementations


@pytest.mark.parametrize("target", ["pt2", "aotinductor_native"])
@pytest.mark.parametrize("name", MODELS)
def test_an_artifact_runs_in_another_process(
    device: str, name: str, target: str, tmp_path: Path
) -> None:
    versions = run_elsewhere(name, target, device, tmp_path)
    facts = with_accelerators(probe_platform(), device).accelerator(device)
    if facts is not None and target != "pt2":
        assert facts.name in versions["device"]


def test_machine_code_can_be_compiled_for_the_device(device: str) -> None:
    # Torch's build for an accelerator brings what compiles for it.
    torch.zeros(1, device=device)
    found = {item.name: item for item in torchyard_implementations(CONTRACT)}
    machine = with_accelerators(probe_platform(), device)
    verdict = found["export.aotinductor"].supports(ExportRequest(device), machine)
    assert verdict.supported, verdict
