"""Machine code of a quantized program multiplies codes, or says that it does not."""

from __future__ import annotations

import platform
from typing import Any

import pytest
import torch

from packages.export.tests.models.quantizable import BATCH, quantized, rows
from torchyard_export import ExportError, export
from torchyard_export.targets import aotinductor
from torchyard_export.targets._int8_kernels import int8_calls

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(
        platform.machine() not in {"x86_64", "AMD64"}, reason="int8 kernels for x86 alone"
    ),
]


@pytest.mark.parametrize(
    ("target", "activations"),
    [
        ("aotinductor_native", "static"),
        ("aotinductor_native", "dynamic"),
        ("aotinductor", "static"),
    ],
)
def test_each_quantized_layer_has_an_int8_kernel(target: str, activations: Any) -> None:
    made = quantized(activations=activations)
    artifact = export(made.model, rows(4)[0], dynamic=BATCH, targets=[target], trials=1)
    assert int8_calls(artifact.files(target)["model.pt2"]) == 2
    assert artifact.verify().passed
    (x,) = rows(9)[0]
    with torch.no_grad():
        error = float((artifact(x) - made.model(x)).abs().max())
        size = float(made.model(x).abs().max())
    assert error < 0.05 * size


def test_a_layer_that_multiplies_floats_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aotinductor, "rounds", lambda _: False)
    made = quantized()
    given: dict[str, Any] = {"targets": ["aotinductor_native"], "trials": 1}
    with pytest.raises(ExportError, match="float-kernels: 0 of 2 quantized layers"):
        export(made.model, rows(4)[0], **given)
