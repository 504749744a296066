"""Planted faults of a quantized program are found by the comparison that export makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from packages.export.tests.models.quantizable import quantized, rows
from torchyard_export._artifact.program import program_runner
from torchyard_export._audit.parity import sweep
from torchyard_export._audit.reference import Reference
from torchyard_export._audit.rounding import WIDENS, call_name
from torchyard_export._call import Call

Change = Callable[[ExportedProgram], None]


def _widening(graph: GraphModule) -> list[Node]:
    return [
        node
        for node in graph.graph.nodes
        if call_name(node) in WIDENS and "per_channel" not in call_name(node)
    ]


def _scale(factor: float) -> Change:
    def change(program: ExportedProgram) -> None:
        node = _widening(program.graph_module)[0]
        scale: Any = node.args[1]
        node.update_arg(1, scale * factor)

    return change


def _swapped_zeros(program: ExportedProgram) -> None:
    first, second = _widening(program.graph_module)
    first_zero, second_zero = first.args[2], second.args[2]
    assert first_zero != second_zero
    first.update_arg(2, second_zero)
    second.update_arg(2, first_zero)


def _channel(program: ExportedProgram) -> None:
    name = next(name for name in program.state_dict if name.startswith("_scale"))
    scales: Tensor = program.state_dict[name]
    program.state_dict[name] = scales.roll(1)


def _code(program: ExportedProgram) -> None:
    name = next(name for name in program.state_dict if name.startswith("_frozen"))
    codes: Tensor = program.state_dict[name]
    program.state_dict[name] = codes.neg()


def _judged(change: Change | None, activations: Any = "static") -> int:
    made = quantized(activations=activations).model
    (x,) = rows(8)[0]
    case = Reference(made, Call.bind(made, (x,), {})).case({}, {"x": x})
    program = torch.export.export(made, (x,))
    if change is not None:
        change(program)
        program.graph_module.recompile()
    return sweep("mutant", program_runner(program), [case]).wrong


@pytest.mark.parametrize("activations", ["static", "dynamic"])
def test_the_program_itself_passes(activations: str) -> None:
    assert _judged(None, activations) == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_scale(2.0), id="scale doubled"),
        pytest.param(_scale(1.05), id="scale off by a twentieth"),
        pytest.param(_swapped_zeros, id="zero points swapped"),
        pytest.param(_channel, id="channels' scales rolled"),
        pytest.param(_code, id="weights negated"),
    ],
)
def test_a_fault_is_found(change: Change) -> None:
    assert _judged(change) == 1
