"""Graphs and exported programs hold one op, for any number of steps and sequences."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence

import torchyard_kernels as tk
from torchyard_kernels import nn
from torchyard_kernels.recurrent.contract import RecurrentKind

from .cases import Case

OP = "torchyard_kernels.recurrent.default"
MODULES = {
    "lstm": lambda: nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True),
    "lstm-projected": lambda: nn.LSTM(4, 5, proj_size=3, batch_first=True),
    "gru": lambda: nn.GRU(4, 5, num_layers=2, bidirectional=True, batch_first=True),
    "rnn-tanh": lambda: nn.RNN(4, 5, bias=False, batch_first=True),
    "rnn-relu": lambda: nn.RNN(4, 5, nonlinearity="relu", bidirectional=True, batch_first=True),
}


class Ragged(torch.nn.Module):
    """Lengths as an input of the program."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, input, lengths):
        output, state = tk.gru(
            input, None, self.layer._weights(), num_layers=2, bidirectional=True, lengths=lengths
        )
        return output, state


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()


def flat(result):
    return torch.utils._pytree.tree_leaves(result)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "strict"), [*((name, False) for name in MODULES), ("lstm", True)], ids=str
)
def test_an_exported_layer_takes_any_batch_and_any_number_of_steps(name, strict):
    module = MODULES[name]().eval()
    dynamic = {"input": {0: Dim("batch"), 1: Dim("time")}}
    exported = torch.export.export(
        module, (torch.randn(3, 6, 4),), dynamic_shapes=dynamic, strict=strict
    )
    for program in (exported, exported.run_decompositions()):
        assert [str(node.target) for node in program.graph.nodes].count(OP) == 1
        assert len(program.range_constraints) == 2, "batch and time are no symbols any more"
        for batch, steps in ((2, 2), (7, 11), (2, 300)):
            given = torch.randn(batch, steps, 4)
            for ours, eager in zip(flat(program.module()(given)), flat(module(given)), strict=True):
                torch.testing.assert_close(ours, eager)


def test_an_exported_program_takes_lengths_and_refuses_an_empty_sequence():
    module = Ragged(nn.GRU(4, 5, num_layers=2, bidirectional=True)).eval()
    batch, time = Dim("batch"), Dim("time")
    program = torch.export.export(
        module,
        (torch.randn(6, 3, 4), torch.tensor([6, 2, 4])),
        dynamic_shapes={"input": {0: time, 1: batch}, "lengths": {0: batch}},
    ).run_decompositions()
    given, lengths = torch.randn(9, 5, 4), torch.tensor([3, 9, 1, 5, 9])

    packed = pack_padded_sequence(given, lengths, enforce_sorted=False)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(module.layer(packed)[0])
    torch.testing.assert_close(program.module()(given, lengths)[0], expected)
    with pytest.raises(ValueError, match="at least 1 step in each sequence, got 0"):
        program.module()(given, torch.tensor([3, 9, 0, 5, 9]))


def test_an_exported_program_survives_saving(tmp_path):
    module = MODULES["gru"]().eval()
    given = torch.randn(3, 6, 4)
    program = torch.export.export(
        module, (given,), dynamic_shapes={"input": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}}
    )
    torch.export.save(program, tmp_path / "gru.pt2")
    loaded = torch.export.load(tmp_path / "gru.pt2").module()
    longer = torch.randn(4, 17, 4)
    torch.testing.assert_close(loaded(longer)[0], module(longer)[0])


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["lstm-projected", "gru"])
def test_compiled_training_is_one_graph_and_equals_eager(name):
    module = MODULES[name]().double()
    given = torch.randn(3, 6, 4, dtype=torch.float64, requires_grad=True)

    def loss(given):
        output, state = module(given)
        return output.sin().sum() + sum(part.square().sum() for part in flat(state))

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    inputs = [given, *module.parameters()]
    eager = torch.autograd.grad(loss(given), inputs)
    for ours, theirs in zip(torch.autograd.grad(compiled(given), inputs), eager, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_another_number_of_steps_does_not_recompile():
    module, graphs = MODULES["gru"]().eval(), []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph

    run = torch.compile(module, fullgraph=True, backend=count, dynamic=True)
    with torch.no_grad():
        for steps in (5, 6, 7, 31):
            given = torch.randn(3, steps, 4)
            torch.testing.assert_close(run(given)[0], module(given)[0])
    assert len(graphs) == 1


@pytest.mark.sweep
@pytest.mark.parametrize("kind", list(RecurrentKind))
@pytest.mark.parametrize("reserve", [False, True], ids=["inference", "training"])
def test_the_ops_pass_torchs_own_checks(kind, reserve):
    case = Case(kind, layers=2, bidirectional=True, ragged=True)
    call = case.call()
    weights = [weight for cell in call.weights for weight in cell if weight is not None]
    tensors = [call.input, call.hidden, *weights, *([] if call.cell is None else [call.cell])]
    if reserve:
        for tensor in tensors:
            tensor.requires_grad_()
    arguments = (call.input, call.hidden, call.cell, weights, call.lengths, str(kind), 2, True)
    torch.library.opcheck(
        torch.ops.torchyard_kernels.recurrent.default, (*arguments, reserve, "kernels.steps")
    )
