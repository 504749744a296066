"""Layers whose calls were decided: straight to their kernel, and only while nothing changed."""

from __future__ import annotations

import pytest
import torch

import torchyard
from torchyard.dispatch import decision_cache
from torchyard_kernels import accelerate, linear
from torchyard_kernels.linear import _api


@pytest.fixture
def ways(monkeypatch):
    """Count the calls that no fast path takes."""
    calls = []
    compute = _api.compute
    monkeypatch.setattr(_api, "compute", lambda call: calls.append(1) or compute(call))
    decision_cache().clear()
    return calls


def layer_of(weights="int4", bias=True, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96, bias=bias)).eval()
    accelerate(model, weights=weights, measure=False, **options)
    return model[0]


@pytest.mark.parametrize("activation", [None, "int8"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_the_second_call_has_the_bits_of_the_first(ways, weights, bias, activation):
    layer = layer_of(weights, bias, activation=activation)
    x = torch.randn(3, 64)
    with torch.inference_mode():
        first = layer(x)
        assert len(ways) == 1
        assert torch.equal(layer(x), first)
        assert torch.equal(layer(x.reshape(1, 3, 64)), first[None])
        assert len(ways) == 1
        assert layer(x[:1]).shape == (1, 96)
        assert len(ways) == 2


def test_repeated_calls_of_many_rows_take_the_fast_path(ways):
    layer = layer_of()
    x = torch.randn(17, 64)
    with torch.inference_mode():
        first = layer(x)
        for _ in range(2):
            assert torch.equal(layer(x), first)
    assert len(ways) == 1


def test_what_does_not_fit_takes_the_way_of_any_call(ways):
    layer = layer_of(bias=False)
    x = torch.randn(2, 64)
    with torch.no_grad():
        expected = layer(x)
        layer(x)
        assert len(ways) == 1
        wide = torch.randn(2, 128)
        wide[:, ::2] = x
        assert torch.equal(layer(wide[:, ::2]), expected)
        assert torch.equal(layer(torch._neg_view(-x)), expected)
        assert torch.equal(layer(torch.nn.Parameter(x)), expected)
        assert layer(x.double()).dtype == torch.float64
        # A parameter, and a tensor that is converted before, are no other case.
        assert len(ways) == 3
        with pytest.raises(ValueError, match="expected a last dimension of 64"):
            layer(torch.randn(2, 32))
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(leaf).sum(), leaf)
    assert torch.allclose(gradient, layer.weight.sum(0).expand(2, 64), atol=1e-5)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_a_weight_is_read_where_it_lies_now(weights):
    packed = layer_of(weights).weight.packed_weight
    x = torch.randn(2, 64)
    with torch.no_grad():
        expected = [linear(x, packed) for _ in range(2)]
        scale = packed._buffers["scale"]
        scale.data = scale.data * 2
        assert torch.equal(linear(x, packed), 2 * expected[0])
        packed.share_memory()
        assert torch.equal(linear(x, packed), 2 * expected[0])
        packed._buffers["scale"] = scale / 2
        assert torch.equal(linear(x, packed), expected[0])


def test_a_mode_sees_the_op(ways):
    layer = layer_of()
    x = torch.randn(2, 64)
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            seen.append(op)
            return op(*args, **(kwargs or {}))

    with torch.no_grad():
        layer(x)
        layer(x)
        with Mode():
            layer(x)
    assert torch.ops.torchyard_kernels.linear.default in seen


def test_a_demand_and_its_end_are_heard(ways):
    layer = layer_of(activation="int8")
    x = torch.randn(2, 64)
    with torch.inference_mode():
        layer(x)
        layer(x)
        assert len(ways) == 1
        with torchyard.use(linear="kernels.reference"):
            layer(x)
            assert len(ways) == 2
            layer(x)
            assert len(ways) == 3
        layer(x)
        assert len(ways) == 3


def test_a_weight_that_was_loaded_or_moved_is_the_one_that_is_read(ways):
    layer, other = layer_of(bias=False), layer_of(bias=False)
    x = torch.randn(2, 64)
    with torch.inference_mode():
        before = layer(x)
        layer(x)
    other.weight.packed_scale.mul_(2)
    layer.load_state_dict(other.state_dict())
    with torch.inference_mode():
        assert torch.equal(layer(x), 2 * before)
    assert len(ways) == 1
    packed = layer.weight.packed_weight
    packed.data = torch.zeros_like(packed.data)
    with torch.inference_mode():
        assert not torch.equal(layer(x), 2 * before)
    # The fast path reads the weight's tensors at each call.
    assert len(ways) == 1


def test_threads_are_asked_for_at_each_call():
    layer = layer_of()
    x = torch.randn(1, 64)
    threads = torch.get_num_threads()
    try:
        with torch.inference_mode():
            expected = layer(x)
            torch.set_num_threads(1)
            assert torch.equal(layer(x), expected)
    finally:
        torch.set_num_threads(threads)
