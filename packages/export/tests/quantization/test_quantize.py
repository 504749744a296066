"""A model becomes int8, says what became so, and goes through export like any other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from packages.export.tests.models.quantizable import (
    BATCH,
    perceptron,
    picture,
    pictures,
    quantized,
    rows,
)
from torchyard import child_environ
from torchyard_export import ExportError, export, load, quantize
from torchyard_export._cli import command


@pytest.mark.parametrize(
    ("target", "activations"), [("x86", "static"), ("x86", "dynamic"), ("xpu", "static")]
)
def test_layers_bytes_and_distance_are_reported(target: Any, activations: Any) -> None:
    model = perceptron()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    report = quantized(target=target, activations=activations).report
    assert report.int8 == {"linear": 2}
    assert (report.layers, report.float_layers) == (2, ())
    assert report.float_bytes == 4 * (16 * 32 + 32 + 32 * 5 + 5)
    # Codes, biases, and a float32 scale and an int64 zero point per channel.
    assert report.int8_bytes == (16 * 32 + 32 * 5) + 4 * 37 + 12 * 37
    assert [item.output for item in report.accuracy] == [""]
    assert report.accuracy[0].sqnr is not None
    assert 25 < report.accuracy[0].sqnr < 60
    assert report.compared == "3 calls of calibration"
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    assert json.loads(json.dumps(report.to_json()))["int8"] == {"linear": 2}


def test_a_convolution_takes_its_batch_norm_and_others_their_names() -> None:
    calls = pictures(4, 2, 6)
    made = quantize(
        picture(),
        (calls[0]["x"],),
        {"bias": calls[0]["bias"]},
        calibration=calls,
        evaluation=pictures(5, 3),
        dynamic=BATCH,
    )
    assert made.report.int8 == {"conv2d": 2, "linear": 1}
    assert "batch_norm" not in made.model.code
    assert [item.output for item in made.report.accuracy] == ["scores"]
    assert made.report.compared == "2 calls of evaluation"
    assert (made.report.accuracy[0].same_top or 0.0) > 0.5
    artifact = export(
        made.model, (calls[0]["x"],), {"bias": calls[0]["bias"]}, dynamic=BATCH, trials=1
    )
    assert artifact.report.model == "Picture"
    assert artifact.report.quantization == made.report
    got = artifact(pictures(9)[0]["x"], bias=calls[0]["bias"])
    assert got["scores"].shape == (9, 5)


class _Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.taken = nn.Linear(4, 4)
        self.stays = nn.Sequential(nn.Linear(4, 4))
        self.turned = nn.ConvTranspose1d(1, 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stays(self.taken(x))
        return nn.functional.linear(self.turned(y[:, None])[:, 0], y @ y.T @ torch.ones(len(y), 6))


def test_each_float_layer_is_named_with_its_reason() -> None:
    model = _Mixed().eval()
    report = quantize(
        model, (torch.randn(3, 4),), calibration=[(torch.randn(3, 4),)], keep=["stays"]
    ).report
    assert report.int8 == {"linear": 1}
    found = {(item.name, item.kind): item.reason for item in report.float_layers}
    assert found["stays.0", "linear"] == "named in keep="
    assert "the quantizer leaves it; it takes linear, " in found["turned", "conv_transpose1d"]
    assert "its weight is computed in forward, not stored" in found.values()
    assert report.float_products == {"matmul": 2}
    lines = "\n".join(report.lines())
    assert "1 of 4 layers are int8 (1 linear)" in lines
    assert "in float: stays.0 (linear): named in keep=" in lines


def test_the_graph_is_in_evaluation_mode_and_export_refuses_another() -> None:
    made = quantized().model
    assert not any(module.training for module in made.modules())
    assert made.eval() is made
    with pytest.raises(ExportError, match="is in training mode"):
        export(made.train(), rows(4)[0])


def test_dynamic_scales_need_no_calibration_and_leave_convolutions() -> None:
    call = pictures(4)[0]
    given = ((call["x"],), {"bias": call["bias"]})
    report = quantize(picture(), *given, activations="dynamic").report
    assert report.int8 == {"linear": 1}
    assert [item.name for item in report.float_layers] == ["first", "second"]
    assert report.compared == "1 calls of the example"


def test_another_process_verifies_it_without_torchao(tmp_path: Path) -> None:
    made = quantized()
    artifact = export(made.model, rows(4)[0], dynamic=BATCH, trials=1)
    path = artifact.save(tmp_path / "a.tya")
    program = f"""
import sys
sys.modules["torchao"] = None
import torch, torchyard_export
found = torchyard_export.load({str(path)!r})
report = found.verify()
print(report.passed, report.quantization.int8, found(torch.ones(9, 16)).shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=child_environ({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True {'linear': 2} torch.Size([9, 5])"
    x = torch.randn(11, 16)
    with torch.no_grad():
        assert torch.equal(load(path)(x), made.model(x))


def test_the_file_holds_no_float_weights() -> None:
    def size(model: nn.Module) -> int:
        return len(export(model, rows(4)[0]).files("pt2")["program.pt2"])

    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(16, 1024), nn.ReLU(), nn.Linear(1024, 512)).eval()
    made = quantize(wide, rows(4)[0], calibration=rows(4, 4)[:1])
    assert size(made.model) < 0.3 * size(wide)


def test_the_command_quantizes_what_a_factory_makes(tmp_path: Path) -> None:
    name = "packages.export.tests.models.quantizable:factory"
    page = tmp_path / "a.html"
    words = [name, "--quantize", "x86", "--activations", "dynamic", "--html", str(page)]
    found = CliRunner().invoke(command, words)
    assert found.exit_code == 0, found.output
    assert "1 of 2 layers are int8 (1 linear)" in found.output
    assert "in float: inner (linear): named in keep=" in page.read_text()
    data = json.loads(CliRunner().invoke(command, [name, "--quantize", "x86", "--json"]).output)
    assert data["quantization"]["activations"] == "static"
    assert data["quantization"]["calibration"] == 2
    refused = CliRunner().invoke(command, [name, "--activations", "dynamic"])
    assert refused.exit_code == 2
    assert "--activations: expected --quantize beside it" in refused.output
