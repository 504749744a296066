"""Compiled variants of a model do not spend one another's limit of compilations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from torchyard_compile._optimizations import _whole


@pytest.mark.skipif(
    "isolate_recompiles" not in inspect.signature(torch.compile).parameters,
    reason="this torch has one limit for all",
)
def test_a_tenth_variant_is_compiled_as_the_first_is() -> None:
    torch.compiler.reset()
    runs: list[int] = []

    def backend(number: int) -> Callable[..., Any]:
        def build(graph: Any, inputs: Any) -> Callable[..., Any]:
            return lambda *values: runs.append(number) or graph(*values)

        return build

    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.ones(2, 4)
    with torch.no_grad():
        expected = model(x)
        for number in range(12):
            applied = _whole(model, backend(number))
            for _ in range(2):
                assert torch.equal(model(x), expected)
            assert runs == [number] * 2, f"variant {number} ran {runs}"
            runs.clear()
            applied.undo()
    torch.compiler.reset()
