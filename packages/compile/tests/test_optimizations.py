"""Compiled variants of a model do not spend one another's limit of compilations."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from packages.compile.tests.counted import Runs
from torchyard_compile._optimizations import _whole


@pytest.mark.skipif(
    "isolate_recompiles" not in inspect.signature(torch.compile).parameters,
    reason="this torch has one limit for all",
)
def test_a_twelfth_variant_is_compiled_as_the_first_is() -> None:
    torch.compiler.reset()
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.ones(2, 4)
    with torch.no_grad():
        expected = model(x)
        for number in range(12):
            runs = Runs()
            applied = _whole(model, runs)
            for _ in range(2):
                assert torch.equal(model(x), expected)
            assert runs.count == 2, f"variant {number} ran uncompiled"
            applied.undo()
    torch.compiler.reset()
