"""Repeated calls go straight to the kernel, or to torch's own layers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchyard
import torchyard_kernels as tk
from torchyard.dispatch import decision_cache
from torchyard_cpu import _native
from torchyard_cpu._tensor_reader import NativePath
from torchyard_cpu.recurrent._forward import NativeRecurrent
from torchyard_kernels.recurrent._ops import FAST_PATH
from torchyard_kernels.recurrent.contract import RecurrentKind

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
def fast_calls(monkeypatch):
    """Record of each call whether the functions' own fast path computed it."""
    calls = []
    make = NativePath.__init__

    def counting(self, functions, *rest):
        make(self, functions, *rest)

        def try_call(*arguments):
            found = functions[0](*arguments)
            calls.append(found is not None)
            return found

        self.try_call = try_call

    monkeypatch.setattr(NativePath, "__init__", counting)
    # The op may take the fast path for what the dispatcher made plain.
    monkeypatch.setattr("torchyard_kernels.recurrent._ops._try_fast_path", lambda *_: None)
    decision_cache().clear()
    yield calls
    decision_cache().clear()


def test_the_second_call_takes_the_fast_path_with_the_same_bits(made, fast_calls):
    function, weights, x, state = made
    with torch.no_grad():
        first = function(x, state, weights)
        assert not any(fast_calls)
        second = function(x, state, weights)
    assert fast_calls[-1]
    assert type(second) is type(first)
    assert type(second.state) is type(first.state)
    assert same(first, second)
    with torch.inference_mode():
        assert same(function(x, state, weights), first)
    assert fast_calls[-1]


def test_batch_first_and_strides_take_the_fast_path(made, fast_calls):
    function, weights, x, state = made
    with torch.no_grad():
        first = function(x, state, weights)
        turned = x.transpose(0, 1).contiguous()
        found = function(turned, state, weights, batch_first=True)
    assert fast_calls[-1]
    assert torch.equal(found.output.transpose(0, 1), first.output)
    assert same(
        found.state if isinstance(found.state, tuple) else (found.state,),
        first.state if isinstance(first.state, tuple) else (first.state,),
    )


def test_what_is_not_plain_is_left_to_the_dispatcher(made, fast_calls):
    function, weights, x, state = made
    with torch.no_grad():
        first = function(x, state, weights)
        function(x, state, weights)
    assert fast_calls.pop()

    def left(call):
        fast_calls.clear()
        result = call()
        assert not any(fast_calls)
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


# Each is computed by another: torch's own layers, and kernels of three dtypes.
PLAIN = {
    "lstm float32": (torch.nn.LSTM, tk.lstm, torch.float32, {"proj_size": 0}),
    "lstm float16": (torch.nn.LSTM, tk.lstm, torch.float16, {"bias": False}),
    "lstm bfloat16": (torch.nn.LSTM, tk.lstm, torch.bfloat16, {"proj_size": 9}),
    "gru bfloat16": (torch.nn.GRU, tk.gru, torch.bfloat16, {}),
    "rnn float32": (torch.nn.RNN, tk.rnn, torch.float32, {"bias": False}),
}


@pytest.fixture(params=PLAIN)
def plain(request):
    module, function, dtype, options = PLAIN[request.param]
    layer = module(12, 20, num_layers=2, bidirectional=True, **options).to(dtype)
    x = torch.randn(6, 3, 12).to(dtype)
    hidden = torch.randn(4, 3, options.get("proj_size") or 20).to(dtype)
    state = (hidden, torch.randn(4, 3, 20).to(dtype)) if module is torch.nn.LSTM else hidden

    def call(x=x, state=state, weights=layer._flat_weights, **more):
        return function(x, state, weights, num_layers=2, bidirectional=True, **more)

    return call, x, state, layer._flat_weights


def test_the_second_call_with_plain_weights_takes_the_fast_path_with_the_same_bits(
    plain, fast_calls
):
    call, x, _, weights = plain
    with torch.no_grad():
        first = call()
        assert not any(fast_calls)
        second = call()
        assert fast_calls[-1]
        assert type(second) is type(first)
        assert type(second.state) is type(first.state)
        assert same(first, second)
        assert same(call(weights=tuple(weights)), first)
        assert fast_calls[-1]
        turned = call(x=x.transpose(0, 1).contiguous(), batch_first=True)
        assert fast_calls[-1]
        assert torch.equal(turned.output.transpose(0, 1), first.output)
        # Not the weights' memory is kept, nor what was packed of them.
        weights[0].mul_(-1)
        changed = call()
        assert fast_calls[-1]
        assert not same(changed, first)
    with torch.inference_mode():
        assert same(call(), changed)


def test_plain_weights_that_do_not_fit_are_left_to_the_checks(plain, fast_calls):
    call, _, state, weights = plain
    with torch.no_grad():
        first = call()
        call()
        assert fast_calls.pop()
        fast_calls.clear()
        turned = [weight.t().contiguous().t() for weight in weights]
        assert torch.allclose(call(weights=turned).output, first.output, rtol=1e-2, atol=1e-2)
        for wrong in (weights[:-1], [*weights[:-1], weights[-1][:-1]], [*weights, weights[0]]):
            with pytest.raises(ValueError, match="weights"):
                call(weights=wrong)
        with pytest.raises(TypeError, match="weights"):
            call(weights=[*weights[:-1], weights[-1].double()])
        with pytest.raises((TypeError, ValueError), match="state"):
            call(state=tuple(s[:1] for s in state) if isinstance(state, tuple) else state[:1])
        with FlopCounterMode(display=False):
            call()
    assert not any(fast_calls)
    # Gradients are recorded where they are wanted.
    assert call().output.requires_grad
    assert not any(fast_calls)


def test_weights_that_are_negated_lazily_are_left_to_the_dispatcher(plain, fast_calls):
    call, _, _, weights = plain
    with torch.no_grad():
        call()
        wanted = call(weights=[*weights[:-1], -weights[-1]])
        assert fast_calls[-1]
        fast_calls.clear()
        found = call(weights=[*weights[:-1], torch._neg_view(weights[-1])])
    assert not any(fast_calls)
    assert torch.allclose(found.output, wanted.output, rtol=1e-2, atol=1e-2)


def test_what_another_implementation_packed_is_refused(made):
    function, weights, x, state = made
    hidden, cell = state if isinstance(state, tuple) else (state, None)
    with torch.no_grad():
        function(x, state, weights)

        def try_packed(packed):
            return FAST_PATH.try_call(
                None, weights.kind, weights.weights, True, packed, x, hidden, cell, 2, True
            )

        assert try_packed(weights.latest()) is not None
        for foreign in (None, object(), SimpleNamespace(native=None)):
            assert try_packed(foreign) is None


def test_plain_calls_that_want_no_gradient_take_the_fast_path_while_gradients_are_recorded(
    fast_calls,
):
    layer = torch.nn.LSTM(4, 5).requires_grad_(False)
    x, state = torch.randn(6, 1, 4), (torch.zeros(1, 1, 5), torch.zeros(1, 1, 5))
    first, second = (tk.lstm(x, state, layer._flat_weights) for _ in range(2))
    assert fast_calls[-1]
    assert same(first, second)


def test_a_changed_weight_is_packed_again(made, fast_calls):
    function, weights, x, state = made
    with torch.no_grad():
        function(x, state, weights)
        before = function(x, state, weights)
        assert fast_calls[-1]
        weights.weights[0].mul_(-1)
        after = function(x, state, weights)
        fresh = function(x, state, list(weights.weights), num_layers=2, bidirectional=True)
    assert not same(before, after)
    assert same(after, fresh)


def test_a_demand_in_the_context_is_followed(made, fast_calls):
    function, weights, x, state = made
    with torch.no_grad():
        function(x, state, weights)
        function(x, state, weights)
        assert fast_calls[-1]
        fast_calls.clear()
        with torchyard.use(recurrent="kernels.steps"):
            function(x, state, weights)
        assert not any(fast_calls)


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


def test_the_native_path_refuses_what_it_is_not_made_for():
    path = NativeRecurrent("").fast_path(None)
    assert path is not None
    with pytest.raises(TypeError, match="try_call: expected 9 arguments, got 0"):
        path.try_call()
    with pytest.raises(TypeError, match="request"):
        path._enable((1, 2))
    nothing = torch.zeros(1)
    given = (nothing, nothing, None, 1, False)
    assert path.try_call(RecurrentKind.GRU, (), True, object(), *given) is None
    assert path.try_call(RecurrentKind.GRU, 3, False, None, *given) is None
    assert path.try_call("another", (), False, None, *given) is None
    with pytest.raises(ValueError, match="kernel: expected a name"):
        _native.packed_weights("none", (1, 1, 1, 1, 1, 1, 0), nothing, 0, True)
    with pytest.raises(TypeError, match="recurrent_fast_path: expected a tuple of 4 kinds"):
        _native.recurrent_fast_path(tuple(RecurrentKind), ("none",))
    assert FAST_PATH.contract == "recurrent/1"
