"""Models on packed int8 and int4 weights are exported with the operator that reads these."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import torchyard_kernels as kernels
from torchyard_export import Artifact, ArtifactError, ExportError, FindingKind, export, load

_FORMATS: tuple[Literal["int8", "int4"], ...] = ("int8", "int4")


def _plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 16)).eval()


class _Scored(nn.Module):
    """A packed weight that is called by hand."""

    def __init__(self, weights: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = kernels.PackedWeight(torch.randn(32, 256), weights)

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = kernels.linear(input, self.weight)
        return found.softmax(-1)


def _accelerated(weights: str) -> nn.Module:
    model = _plain()
    kernels.accelerate(model, weights=weights, measure=False)
    return model


def _exported(model: nn.Module, *targets: str) -> Artifact:
    return export(
        model, (torch.randn(3, 256),), dynamic={"input": {0: "batch:1..8"}}, targets=targets
    )


@pytest.mark.parametrize("weights", _FORMATS)
@pytest.mark.parametrize("make", [_accelerated, _Scored], ids=["accelerate", "by hand"])
def test_packed_weights_stay_packed_and_results_the_same(
    make: Callable[[str], nn.Module], weights: str
) -> None:
    model = make(weights).eval()
    made = _exported(model, "pt2")
    program = made.files("pt2")["program.pt2"]
    assert b"torch.ops.torchyard_kernels.linear" in program
    x = torch.randn(5, 256)
    with torch.no_grad():
        assert torch.equal(made(x), model(x))
    assert made.report.passed
    if make is _accelerated:
        assert made.report.ruler == "float64"
    else:
        assert made.report.ruler.startswith("the model's own precision; float64: TypeError")


@pytest.mark.parametrize(("weights", "share"), [("int8", 0.35), ("int4", 0.25)])
def test_a_file_is_as_small_as_its_weights(weights: str, share: float) -> None:
    sizes = [
        len(_exported(model, "pt2").files("pt2")["program.pt2"])
        for model in (_accelerated(weights), _plain())
    ]
    assert sizes[0] < share * sizes[1]


@pytest.mark.sweep
def test_a_file_is_proven_where_nothing_was_imported(tmp_path: Path) -> None:
    path = _exported(_accelerated("int8"), "pt2").save(tmp_path / "a.tya")
    script = (
        "import sys\n"
        "from torchyard_export import load\n"
        "assert 'torchyard_kernels' not in sys.modules\n"
        f"assert load({str(path)!r}).verify().passed\n"
    )
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environ, cwd=tmp_path)


def test_a_file_whose_operators_are_not_installed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _exported(_accelerated("int8"), "pt2").save(tmp_path / "a.tya")
    monkeypatch.setattr("torchyard_export._artifact.program.find_spec", lambda name: None)
    with pytest.raises(ArtifactError, match="pip install torchyard-kernels"):
        load(path)(torch.randn(3, 256))


@pytest.mark.parametrize("target", ["onnx", "executorch"])
@pytest.mark.parametrize("weights", _FORMATS)
def test_a_runtime_without_the_operator_is_refused_with_what_to_do(
    target: str, weights: str
) -> None:
    with pytest.raises(ExportError) as error:
        _exported(_accelerated(weights), target)
    (finding,) = error.value.findings
    assert finding.kind is FindingKind.TARGET_REFUSES
    assert "torchyard_kernels::linear" in finding.text
    assert "export the model as it was before its weights were packed" in finding.text


@pytest.mark.sweep
def test_packed_weights_pass_as_machine_code() -> None:
    made = _exported(_accelerated("int4"), "aotinductor")
    assert made.report.passed
    assert b"torchyard_kernels::linear" in made.files("aotinductor")["model.pt2"]
