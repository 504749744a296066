"""Calls with packed weights that were decided before go straight to the kernel."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchyard
import torchyard_kernels as tk
from torchyard import registry
from torchyard_cpu import _native
from torchyard_cpu._recurrent_forward import DirectRecurrent, NativeRecurrent
from torchyard_kernels._recurrent._ops import CALLS

MODULES = {
    "lstm": (torch.nn.LSTM, tk.lstm, torch.float16),
    "gru": (torch.nn.GRU, tk.gru, torch.bfloat16),
    "rnn_tanh": (torch.nn.RNN, tk.rnn, torch.float32),
}


def leaves(result):
    return torch.utils._pytree.tree_leaves(tuple(result))


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))


@pytest.fixture(params=MODULES)
def made(request):
    kind, dtype = request.param, MODULES[request.param][2]
    module = MODULES[kind][0](24, 40, num_layers=2, bidirectional=True).to(dtype)
    weights = tk.PackedRecurrent(kind, module._flat_weights, num_layers=2, bidirectional=True)
    x, hidden = torch.randn(5, 2, 24).to(dtype), torch.randn(4, 2, 40).to(dtype)
    state = (hidden, torch.randn(4, 2, 40).to(dtype)) if kind == "lstm" else hidden
    return MODULES[kind][1], weights, x, state


@pytest.fixture
def served(monkeypatch):
    """Count what was served directly."""
    calls = []
    serve = DirectRecurrent.serve

    def counting(self, *arguments):
        found = serve(self, *arguments)
        calls.append(found is not None)
        return found

    monkeypatch.setattr(DirectRecurrent, "serve", counting)
    registry().conclusions().clear()
    return calls


def test_the_second_call_is_served_directly_with_the_same_bits(made, served):
    function, weights, x, state = made
    with torch.no_grad():
        first = function(x, state, weights)
        assert not any(served)
        second = function(x, state, weights)
    assert served[-1]
    assert type(second) is type(first)
    assert type(second.state) is type(first.state)
    assert same(first, second)
    with torch.inference_mode():
        assert same(function(x, state, weights), first)
    assert served[-1]


def test_batch_first_and_strides_are_served(made, served):
    function, weights, x, state = made
    with torch.no_grad():
        first = function(x, state, weights)
        turned = x.transpose(0, 1).contiguous()
        found = function(turned, state, weights, batch_first=True)
    assert served[-1]
    assert torch.equal(found.output.transpose(0, 1), first.output)
    assert same(
        found.state if isinstance(found.state, tuple) else (found.state,),
        first.state if isinstance(first.state, tuple) else (first.state,),
    )


def test_what_is_not_plain_is_left_to_the_dispatcher(made, served):
    function, weights, x, state = made
    with torch.no_grad():
        first = function(x, state, weights)
        function(x, state, weights)
    assert served.pop()

    def left(call):
        served.clear()
        result = call()
        assert not any(served)
        return result

    assert left(lambda: function(x, state, weights)).output.requires_grad
    with torch.no_grad():
        assert same(
            left(lambda: function(x[:, :, :], state, weights, implementation="cpu.native")), first
        )
        assert left(lambda: function(x[:2], state, weights)).output.shape[0] == 2
        lengths = torch.tensor([3, 2])
        left(lambda: function(x, state, weights, lengths=lengths))
        left(lambda: function(x[:, 0], None, weights))
        with FlopCounterMode(display=False):
            assert same(left(lambda: function(x, state, weights)), first)
        torch.use_deterministic_algorithms(True)
        try:
            assert same(left(lambda: function(x, state, weights)), first)
        finally:
            torch.use_deterministic_algorithms(False)
        for wrong in (x.double(), x[..., :5], x[:0]):
            with pytest.raises((TypeError, ValueError)):
                left(lambda wrong=wrong: function(wrong, state, weights))
        small = state[:, :1] if isinstance(state, torch.Tensor) else tuple(p[:, :1] for p in state)
        with pytest.raises(ValueError, match="state"):
            left(lambda: function(x, small, weights))


def test_a_changed_weight_is_packed_anew(made, served):
    function, weights, x, state = made
    with torch.no_grad():
        function(x, state, weights)
        before = function(x, state, weights)
        assert served[-1]
        weights.weights[0].mul_(-1)
        after = function(x, state, weights)
        fresh = function(x, state, list(weights.weights), num_layers=2, bidirectional=True)
    assert not same(before, after)
    assert same(after, fresh)


def test_a_demand_in_the_context_is_followed(made, served):
    function, weights, x, state = made
    with torch.no_grad():
        function(x, state, weights)
        function(x, state, weights)
        assert served[-1]
        served.clear()
        with torchyard.use(recurrent="kernels.steps"):
            function(x, state, weights)
        assert not any(served)


def test_a_streaming_call_allocates_its_results_alone():
    packed = NativeRecurrent("").pack
    assert packed is not None
    module = torch.nn.GRU(16, 16).to(torch.bfloat16)
    weights = tk.PackedRecurrent("gru", module._flat_weights)
    x, state = torch.randn(1, 1, 16).bfloat16(), torch.zeros(1, 1, 16).bfloat16()
    with torch.no_grad():
        for _ in range(50):
            output, state = tk.gru(x, state, weights)
    assert output._use_count() <= 2  # this name, and torch's own
    assert torch.isfinite(output).all()


def test_the_native_direct_call_refuses_a_wrong_number_of_arguments():
    direct = NativeRecurrent("").direct()
    assert direct is not None
    with pytest.raises(TypeError, match="serve: expected 4 arguments, got 0"):
        direct._native.serve()
    with pytest.raises(TypeError, match="request"):
        direct._native.admit((1, 2))
    assert direct.serve(object(), torch.zeros(1), torch.zeros(1), None) is None
    with pytest.raises(ValueError, match="kernel: expected a name"):
        _native.packed_weights("none", (1, 1, 1, 1, 1, 1, 0), 0, True)
    assert CALLS.contract == "recurrent/1"
