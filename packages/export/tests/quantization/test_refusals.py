"""What quantize does not take is refused by name, with what to do."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from packages.export.tests.models.quantizable import BATCH, perceptron, quantized
from torchyard_export import ExportError, FindingKind, InputError, export, quantize

_X = torch.ones(4, 16)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"calibration": None}, "calibration: expected calls that static scales are found by, got"),
        ({"calibration": []}, "calibration: expected calls of the model, got none: the iterable"),
        ({"calibration": iter(())}, "a generator that was read before is empty"),
        ({"calibration": _X}, "calibration: expected an iterable of calls, such as \\[\\(x,\\)\\]"),
        ({"calibration": [_X]}, "calibration\\[0\\]: expected a call of the model: a tuple"),
        ({"calibration": [(_X,), (_X, _X)]}, "calibration\\[1\\]: .*arguments \\(x\\), got others"),
        ({"calibration": [{"y": _X}]}, "calibration\\[0\\]: expected the example's arguments"),
        ({"calibration": [((_X,),)]}, "calibration\\[0\\]: inputs: expected {x: leaf}, got"),
        ({"calibration": [(_X.double(),)]}, "calibration\\[0\\]: input x: expected float32, got"),
        ({"calibration": [(_X[:, :3],)]}, "axis 1: expected 16, got 3; .* named in dynamic="),
        ({"calibration": [(_X.repeat(9, 1),)]}, "axis 0: expected batch:1..32, got 36"),
        ({"calibration": [(_X * float("nan"),)]}, "input x: expected numbers, .* got NaN"),
        ({"calibration": [(_X * float("inf"),)]}, "calibration\\[0\\]: expected activations that"),
        ({"evaluation": []}, "evaluation: expected calls of the model, got none"),
        ({"target": "arm"}, "target: expected 'x86' or 'xpu', got 'arm'"),
        ({"activations": "int4"}, "activations: expected 'static' or 'dynamic', got 'int4'"),
        ({"target": "xpu", "activations": "dynamic"}, "expected 'static' for target 'xpu', got"),
        ({"keep": ["outer"]}, "keep: expected names of the model's modules, got 'outer'; the mod"),
        ({"dynamic": {"y": {0: "batch"}}}, "dynamic: expected names of arguments \\(x\\), got 'y'"),
        ({"accept": ["all"]}, "accept: expected kinds of findings"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match) as raised:
        quantized(**options)
    assert not isinstance(raised.value, ExportError)


def test_calls_that_differ_from_the_example_are_input_errors() -> None:
    with pytest.raises(InputError, match="quantize: calibration\\[0\\]"):
        quantized(calibration=[(_X.double(),)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=r"expected float32 weights and inputs.* in inner\.w"):
        quantize(perceptron().to(dtype), (_X.to(dtype),), calibration=[(_X.to(dtype),)])


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module"):
        quantize(torch.relu, (_X,), calibration=[(_X,)])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="args: expected a call's arguments as \\(x,\\)"):
        quantize(perceptron(), _X, calibration=[(_X,)])  # type: ignore[arg-type]


def test_a_model_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a model on cpu for target 'x86', got one on m"):
        quantize(perceptron().to("meta"), (_X.to("meta"),), calibration=[(_X,)])


def test_packed_sequences_are_refused() -> None:
    packed = pack_sequence([torch.ones(2, 3)])
    with pytest.raises(TypeError, match=r"args: expected tensors.* pad packed sequences first"):
        quantize(nn.GRU(3, 3).eval(), (packed,), calibration=[(packed,)])


def _kinds(error: ExportError) -> set[FindingKind]:
    return {finding.kind for finding in error.findings}


def test_training_mode_is_a_finding() -> None:
    with pytest.raises(ExportError, match="the model is in training mode") as raised:
        quantize(perceptron().train(), (_X,), calibration=[(_X,)])
    assert _kinds(raised.value) == {FindingKind.TRAINING_BEHAVIOUR}


class _Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = -x
        found: Tensor = self.layer(x)
        return found


def test_what_cannot_be_recorded_names_the_users_line() -> None:
    with pytest.raises(ExportError) as raised:
        quantize(_Branching().eval(), (_X,), calibration=[(_X,)])
    assert _kinds(raised.value) == {FindingKind.DATA_DEPENDENT_BRANCH}
    assert "test_refusals.py:" in str(raised.value)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (nn.Softmax(-1), "the model has no linear or convolution layer"),
        (nn.Sequential(nn.Linear(16, 4)), "0 (linear): named in keep="),
    ],
)
def test_nothing_quantized_is_never_silent(model: nn.Module, text: str) -> None:
    keep = ["0"] if isinstance(model, nn.Sequential) else []
    given: dict[str, Any] = {"calibration": [(_X,)], "keep": keep}
    with pytest.raises(ExportError, match=re.escape(f"no layer became int8: {text}")) as raised:
        quantize(model.eval(), (_X,), **given)
    assert _kinds(raised.value) == {FindingKind.NOTHING_QUANTIZED}
    report = quantize(model.eval(), (_X,), accept=["nothing-quantized"], **given).report
    assert "0 of" in report.lines()[0]


def test_an_absent_torchao_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name="torchao")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImportError, match="'torchao', found none; pip install 'torch"):
        quantized()


@pytest.mark.parametrize("lost", ["module", "function"])
def test_a_torchao_that_lacks_a_part_is_told_by_name(
    monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    real = importlib.import_module

    def older(name: str) -> Any:
        if not name.endswith("xpu_inductor_quantizer"):
            return real(name)
        if lost == "module":
            raise ModuleNotFoundError(name, name=name)
        return object()

    monkeypatch.setattr(importlib, "import_module", older)
    quantized()
    with pytest.raises(
        ImportError, match=r"expected a torchao with .*xpu_inductor_quantizer.*, got"
    ):
        quantized(target="xpu")


def test_machine_code_of_the_cpu_refuses_codes_of_intels_gpus() -> None:
    made = quantized(target="xpu")
    with pytest.raises(ExportError, match=r"expected uint8 activations.* with target='x86'"):
        export(made.model, (_X,), dynamic=BATCH, targets=["aotinductor_native"], trials=1)
