"""What each target makes computes what the model does, and what it must not hold is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch

from packages.export.tests.models.recurrent import Cell, axes_of, prepared
from packages.export.tests.programs.matrix import RANGES, ours
from torchyard import Platform, ReasonCode, probe_platform
from torchyard_export import Artifact, ExportError, FindingKind, export, load
from torchyard_export._artifact.program import load_program
from torchyard_export._audit.parity import sweep
from torchyard_export._audit.reference import Case
from torchyard_export._audit.suspects import gru_suspect
from torchyard_export.contract import CONTRACT, ExportRequest, TargetError
from torchyard_export.targets import torchyard_implementations
from torchyard_export.targets.onnx import Onnx

_GRU = Cell("GRU", 1, True, True, False, False, False, "both")
_ONNX = (
    Cell("LSTM", 2, True, False, True, True, False, "both"),
    Cell("GRU", 1, True, True, False, True, True, "both"),
    Cell("RNN-relu", 1, True, False, False, False, False, "time"),
)


def _exported(cell: Cell, *targets: str) -> tuple[torch.nn.Module, Artifact]:
    model, kwargs = prepared(cell)
    dynamic = {
        name: {axis: RANGES[dimension] for axis, dimension in axes.items()}
        for name, axes in axes_of(cell).items()
    }
    return model, export(model, (), kwargs, dynamic=dynamic, targets=targets, trials=1)


@pytest.fixture(scope="module")
def gru() -> tuple[torch.nn.Module, Artifact]:
    """Return a GRU and its artifact in all the forms that need no compiler."""
    return _exported(_GRU, "pt2", "aten", "onnx")


@pytest.mark.sweep
@pytest.mark.parametrize("cell", _ONNX, ids=str)
def test_a_recurrent_layer_passes_as_onnx(cell: Cell) -> None:
    forms = ("export", "decompositions", "saved", "onnx")
    assert ours(cell, ("onnx",)) == dict.fromkeys(forms, "passed")


def test_every_form_of_one_artifact_computes_the_same(
    gru: tuple[torch.nn.Module, Artifact],
) -> None:
    model, artifact = gru
    x = torch.randn(4, 13, 3)
    with torch.no_grad():
        wanted = model(x)[0]
    assert torch.equal(artifact(x)[0], wanted)
    assert torch.equal(artifact.run("aten", x)[0], wanted)
    torch.testing.assert_close(artifact.run("onnx", x)[0], wanted)


def test_onnx_holds_the_layer_itself(gru: tuple[torch.nn.Module, Artifact]) -> None:
    model = onnx.load_model_from_string(gru[1].files("onnx")["model.onnx"])
    (node,) = [node for node in model.graph.node if node.op_type == "GRU"]
    assert {item.name: item.i for item in node.attribute}["linear_before_reset"] == 1


def _flipped(data: bytes) -> bytes:
    model = onnx.load_model_from_string(data)
    for node in model.graph.node:
        for item in node.attribute:
            if item.name == "linear_before_reset":
                item.i = 0
    return model.SerializeToString()


def test_a_gru_with_the_other_reset_order_is_found_in_the_file(
    gru: tuple[torch.nn.Module, Artifact],
) -> None:
    good = gru[1].files("onnx")
    assert not list(Onnx().findings(good))
    ((kind, text),) = Onnx().findings({"model.onnx": _flipped(good["model.onnx"])})
    assert kind == FindingKind.GRU_RESET_ORDER
    assert "linear_before_reset = 0" in text


def test_a_gru_with_the_other_reset_order_is_known_by_its_results(
    gru: tuple[torch.nn.Module, Artifact], tmp_path: Path
) -> None:
    model, artifact = gru
    program = load_program(artifact.files("pt2")["program.pt2"])
    x = torch.randn(3, 5, 3)
    with torch.no_grad():
        outputs = list(model(x))
        exact = list(model.double()(x.double()))
        model.float()
    labelled = [(str(index), item) for index, item in enumerate(outputs)]
    case = Case({}, {"x": x}, labelled, exact, [1e-6, 1e-6], None)
    flipped = {"model.onnx": _flipped(artifact.files("onnx")["model.onnx"])}
    suspect = gru_suspect(program, "onnx")
    stage = sweep("onnx", Onnx().load(flipped, tmp_path), [case], suspect=suspect)
    assert [finding.kind for finding in stage.findings] == [FindingKind.GRU_RESET_ORDER]


def test_weights_in_another_file_are_refused(
    gru: tuple[torch.nn.Module, Artifact], tmp_path: Path
) -> None:
    model = onnx.load_model_from_string(gru[1].files("onnx")["model.onnx"])
    first = model.graph.initializer[0]
    first.data_location = onnx.TensorProto.EXTERNAL
    entry = first.external_data.add()
    entry.key, entry.value = "location", "../../secret"
    with pytest.raises(TargetError, match="expected weights inside"):
        Onnx().load({"model.onnx": model.SerializeToString()}, tmp_path)
    with pytest.raises(TargetError, match="expected an ONNX model"):
        Onnx().load({"model.onnx": b"\xff\xff"}, tmp_path)


@pytest.mark.sweep
def test_the_aten_form_runs_where_this_package_is_not(
    gru: tuple[torch.nn.Module, Artifact], tmp_path: Path
) -> None:
    model, artifact = gru
    x = torch.randn(5, 17, 3)
    (tmp_path / "program.pt2").write_bytes(artifact.files("aten")["program.pt2"])
    with torch.no_grad():
        torch.save((x, model(x)[0]), tmp_path / "call.pt")
    script = (
        "import sys, torch\n"
        "x, wanted = torch.load('call.pt')\n"
        "got = torch.export.load('program.pt2').module()(x)[0]\n"
        "assert torch.equal(got, wanted)\n"
        "assert not any(name.startswith('torchyard') for name in sys.modules)\n"
    )
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, env=environ)


def test_a_packed_sequence_has_no_aten_form() -> None:
    model, kwargs = prepared(Cell("GRU", 1, False, True, False, False, True, "batch"))
    with pytest.raises(ExportError, match="expected padded sequences") as error:
        export(model, (), kwargs, targets=["aten"])
    assert error.value.findings[0].kind is FindingKind.TARGET_REFUSES


def test_a_target_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {item.name: item for item in torchyard_implementations(CONTRACT)}
    platform: Platform = probe_platform()
    assert found["export.onnx"].supports(ExportRequest("cpu"), platform).supported
    monkeypatch.setattr("torchyard_export.targets.find_spec", lambda name: None)
    verdict = found["export.onnx"].supports(ExportRequest("cpu"), platform)
    assert verdict.code is ReasonCode.DEPENDENCY
    assert "torchyard-export[onnx]" in verdict.hint


def test_an_artifact_of_many_forms_proves_each_of_them(
    gru: tuple[torch.nn.Module, Artifact], tmp_path: Path
) -> None:
    loaded = load(gru[1].save(tmp_path / "gru.tya"))
    report = loaded.verify()
    assert [stage.name for stage in report.stages] == ["pt2", "aten", "onnx"]
    assert report.passed


def test_weights_are_the_models_own() -> None:
    from torchyard_export._call import Call
    from torchyard_export._capture.dimension import parse_dynamic
    from torchyard_export._capture.trace import record

    for packed in (False, True):
        model, kwargs = prepared(Cell("LSTM", 2, True, True, True, False, packed, "both"))
        call = Call.bind(model, (), kwargs)
        program, _, _ = record(
            model, *call.spread(call.arguments), parse_dynamic(None, call.arguments)
        )
        assert not program.graph_signature.inputs_to_lifted_tensor_constants
        own = {item.data_ptr() for item in model.parameters()}
        assert {item.data_ptr() for item in program.state_dict.values()} == own
