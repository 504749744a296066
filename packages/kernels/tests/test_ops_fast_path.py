"""What a graph or a package calls, the ops, goes to a decided kernel as directly as eager calls do,
with the bits and the errors of the long way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torchyard
import torchyard_kernels as tk
from torchyard.dispatch import FastPath, decision_cache
from torchyard_kernels.linear import _api as linear_api
from torchyard_kernels.linear import _ops as linear_ops
from torchyard_kernels.pointwise import _api as pointwise_api
from torchyard_kernels.pointwise import _ops as pointwise_ops
from torchyard_kernels.topk import _api as topk_api
from torchyard_kernels.topk import _ops as topk_ops

OPS = torch.ops.torchyard_kernels
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# The fast path of eager calls, before the ops.
EAGER = (
    (linear_api, "_try_call"),
    (linear_api, "_try_fused"),
    (linear_api, "_try_packed"),
    (topk_api, "_try_call"),
    (pointwise_api, "FAST_PATH"),
)


@pytest.fixture
def ways(monkeypatch):
    """Send all calls to the ops, count those that the fast path computes there, and turn it off."""
    found = SimpleNamespace(count=0, open=True)

    try_call = FastPath.try_call

    def watched(*args):
        result = try_call(*args) if found.open else None
        found.count += result is not None
        return result

    def never(*_):
        return None

    never.try_call = never
    for module, name in EAGER:
        monkeypatch.setattr(module, name, never)
    for module in (linear_ops, topk_ops, pointwise_ops):
        monkeypatch.setattr(module, "is_plain_call", lambda tensors: False)
    monkeypatch.setattr(FastPath, "try_call", watched)
    with torchyard.use(linear="cpu.native", topk="cpu.native", pointwise="cpu.native"):
        decision_cache().clear()
        yield found


def leaves(result):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if leaf is not None]


def agree(one, other):
    for a, b in zip(leaves(one), leaves(other), strict=True):
        assert torch.equal(a, b)
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())


def repeated(ways, call, direct=True):
    """Compute a call the long way, and again as one that was decided: the same comes out."""
    ways.open = False
    long = call()
    ways.open, ways.count = True, 0
    again = call()
    assert direct is None or bool(ways.count) == direct
    agree(long, again)
    return again


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(3, 64), (64,), (2, 3, 64), (2, 1, 3, 64)], ids=str)
def test_products_are(ways, dtype, packed, shape):
    weight, bias = torch.randn(96, 64).to(dtype), torch.randn(96).to(dtype)
    held = tk.PackedWeight(weight) if packed else weight
    x = torch.randn(shape).to(dtype)
    for given_bias in (bias, None):
        out = repeated(ways, lambda bias=given_bias: tk.linear(x, held, bias))
        assert out.shape == (*shape[:-1], 96)
        assert out.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_of_other_layouts_are(ways, dtype):
    x, weight = torch.randn(3, 5, 64).to(dtype), torch.randn(40, 64).to(dtype)
    a, b = torch.randn(4, 3, 16).to(dtype), torch.randn(4, 16, 5).to(dtype)
    repeated(ways, lambda: tk.linear(x.transpose(0, 1)[1:], weight))
    repeated(ways, lambda: tk.linear(x, weight.t().contiguous().t()))
    repeated(ways, lambda: tk.matmul(x, weight.t()))
    repeated(ways, lambda: tk.bmm(a, b))
    repeated(ways, lambda: tk.bmm(a, b.mT.contiguous().mT))
    # Elements apart are copied first, which the long way does.
    repeated(ways, lambda: tk.linear(x[..., ::2], weight[:, ::2]), direct=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_products_with_functions_are(ways, dtype, packed):
    weight, x = torch.randn(128, 64).to(dtype), torch.randn(3, 64).to(dtype)
    held = tk.PackedWeight(weight) if packed else weight
    bias, full, row = torch.randn(128).to(dtype), torch.randn(3, 128).to(dtype), torch.randn(3, 1)
    for functions in (
        {"epilogue": lambda y: y * 2},
        {"epilogue": lambda y: y + full},
        {"prologue": lambda x: x * row},
        {"prologue": lambda x: x * row, "epilogue": lambda y: torch.relu(y) + full},
        {"epilogue": lambda gate, up: torch.sigmoid(gate) * up},
    ):
        repeated(ways, lambda functions=functions: tk.linear(x, held, bias, **functions))


def test_formats_take_the_fast_path_where_a_kernel_has_one(ways):
    x, weight = torch.randn(3, 64), torch.randn(64, 64)
    repeated(ways, lambda: tk.linear(x, tk.PackedWeight(weight)))
    codes = tk.quantize(weight, bits=8)
    with torchyard.use(linear="cpu.quantised"):
        repeated(ways, lambda: tk.linear(x, codes))
    with torchyard.use(linear="kernels.composed"):
        repeated(ways, lambda: tk.linear(x, codes, epilogue=lambda y: y * 2), direct=False)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    data=st.data(),
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    dtype=st.sampled_from((*DTYPES, torch.float64, torch.uint8, torch.int64)),
    largest=st.booleans(),
    ordered=st.booleans(),
)
def test_selections_are(ways, data, shape, dtype, largest, ordered):
    x, mask = torch.randint(0, 50, shape).to(dtype), torch.rand(shape) < 0.5
    k = data.draw(st.integers(1, shape[-1]))
    repeated(ways, lambda: tk.topk(x, k, -1, largest, ordered))
    repeated(ways, lambda: tk.masked_topk(x, mask, k, -1, largest, ordered))
    repeated(ways, lambda: tk.masked_topk(x, mask.flatten()[: shape[-1]], k, -1, largest, ordered))
    repeated(ways, lambda: tk.masked_topk(x, mask[..., :1], k, -1, largest, ordered), direct=None)
    repeated(ways, lambda: tk.kthvalue(x, k))
    kept = repeated(ways, lambda: tk.kthvalue(x, k, keepdim=True))
    assert kept.values.shape == (*shape[:-1], 1)
    # The dimension stays in its place.
    rows = x[None].expand(3, *shape)
    repeated(ways, lambda: tk.kthvalue(rows, 2, 0, keepdim=True), direct=False)
    repeated(ways, lambda: tk.topk(rows, 2, 0, largest, ordered), direct=False)
    flat = x.flatten()
    bounds = data.draw(st.lists(st.integers(0, flat.numel()), min_size=2, max_size=5))
    offsets = torch.tensor(sorted(bounds))
    repeated(ways, lambda: tk.segmented_topk(flat, offsets, k, largest, ordered))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("groups", [1, 3])
def test_maps_are(ways, dtype, groups):
    one = [torch.randn(4, 5).to(dtype) for _ in range(groups)]
    other = [torch.randn(4, 5) for _ in range(groups)]
    shared, row = torch.tensor(0.5), torch.randn(5).to(dtype)
    repeated(ways, lambda: tk.foreach_map(lambda a, b: a + 2 * b, one, other))
    repeated(ways, lambda: tk.foreach_map(lambda a, b: (a * b, a - row), one, shared))
    repeated(ways, lambda: tk.foreach_map(lambda a, b, c: a * b + c, one, 0.5, other))
    numbers = [float(group) for group in range(groups)]
    repeated(ways, lambda: tk.foreach_map(lambda a, b, c: a * b + c, one, numbers, 3))
    into = [torch.zeros(4, 5) for _ in range(groups)]

    def write():
        for tensor in into:
            tensor.zero_()
        tk.foreach_map_(lambda a, b: a * b + row, one, shared, out=[into])
        return [tensor.clone() for tensor in into]

    assert any(tensor.any() for tensor in repeated(ways, write))


def test_maps_of_several_kinds_go_the_long_way(ways):
    mixed = [torch.randn(4), torch.randn(4).half()]
    repeated(ways, lambda: tk.foreach_map(lambda a: a * 2, mixed), direct=False)
    tensors = [torch.randn(4)]
    named = {"implementation": "kernels.map"}
    repeated(ways, lambda: tk.foreach_map(lambda a: a * 2, tensors, **named), direct=False)


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_recurrent_layers_are(ways, kind, dtype):
    size = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[kind] * 8
    weights = [torch.randn(size, 8), torch.randn(size, 8), torch.randn(size), torch.randn(size)]
    weights = [weight.to(dtype) for weight in weights]
    x, hidden = torch.randn(3, 2, 8).to(dtype), torch.randn(1, 2, 8).to(dtype)
    cell = torch.randn(1, 2, 8).to(dtype) if kind == "lstm" else None

    def run(lengths=None, reserve=False, use=""):
        given = (x, hidden, cell, weights, lengths, kind, 1, False, reserve, use)
        return OPS.recurrent(*given)

    repeated(ways, run)
    repeated(ways, lambda: run(lengths=torch.tensor([2, 3])), direct=False)
    repeated(ways, lambda: run(reserve=True), direct=False)
    repeated(ways, lambda: run(use="kernels.steps"), direct=False)


def test_what_was_wrong_is_refused_in_the_same_words_after_right_calls(ways):
    x, flat = torch.randn(3, 8), torch.randn(8)
    mask = torch.ones(8, dtype=torch.bool)
    repeated(ways, lambda: OPS.topk(x, mask.expand(3, 8), 2, 1, True, "sorted"))
    repeated(ways, lambda: OPS.segmented_topk(flat, torch.tensor([0, 4, 8]), 2, True, "sorted"))
    repeated(ways, lambda: OPS.linear(x, [x], "", None))
    text = pointwise_text(lambda a: a * 2)
    repeated(ways, lambda: OPS.pointwise([x], None, None, "T", 1, text, ""))
    repeated(ways, lambda: OPS.pointwise_([x.clone()], [x], None, None, "T", 1, text, ""))
    for wrong in (
        lambda: OPS.topk(x, mask, 2, 1, True, "sorted"),
        lambda: OPS.topk(x, None, 2, 1, True, "best"),
        lambda: OPS.topk(x, None, 2, 5, True, "sorted"),
        lambda: OPS.segmented_topk(flat, torch.tensor([0, 4, 9]), 2, True, "sorted"),
        lambda: OPS.segmented_topk(flat, torch.tensor([4, 0, 8]), 2, True, "sorted"),
        lambda: OPS.linear(x, [x], "panels", None),
        lambda: OPS.linear(x, [], "", None),
        lambda: OPS.linear_fused(x, [x], "", None, "", None, "what", None, False),
        lambda: OPS.pointwise([x], None, None, "Z", 1, text, ""),
        lambda: OPS.pointwise([x], None, None, "T", 1, text, "kernels.absent"),
        lambda: OPS.pointwise_([x[:2].clone()], [x], None, None, "T", 1, text, ""),
        lambda: OPS.recurrent(x, x, None, [x, x], None, "what", 1, False, False, ""),
    ):
        errors = []
        for ways.open in (False, True):
            with pytest.raises(Exception) as caught:  # noqa: PT011 (any, but both the same)
                wrong()
            errors.append((type(caught.value), str(caught.value)))
        assert errors[0] == errors[1]


def test_gradients_are_recorded_around_a_direct_call(ways):
    weight = torch.randn(4, 8)

    def gradients():
        x = torch.linspace(-1, 1, 24).reshape(3, 8).requires_grad_()
        out = tk.linear(x, weight)
        out = out + tk.topk(x, 4).values + tk.kthvalue(x, 2, keepdim=True).values
        out = out * tk.foreach_map(lambda a: a * a, [x])[0][:, :4]
        return torch.autograd.grad(out.square().sum(), x)

    found = repeated(ways, gradients)
    assert found[0].any()
    # The forward's three and the map, and what their backward multiplies.
    assert ways.count >= 4


def test_a_demand_a_setting_and_a_transform_are_respected(ways):
    x = torch.randn(3, 8)
    repeated(ways, lambda: tk.topk(x, 2))
    with torchyard.use(topk="kernels.sort"):
        repeated(ways, lambda: tk.topk(x, 2), direct=False)
    with torch.profiler.profile():
        repeated(ways, lambda: tk.topk(x, 2), direct=False)
    rows = torch.vmap(lambda row: tk.topk(row, 2).values)(x)
    assert torch.equal(rows, torch.topk(x, 2).values)


def test_what_is_tuned_is_not_passed_by(ways, monkeypatch):
    x, seen = torch.randn(3, 8), []
    double = {"epilogue": lambda y: y * 2}
    repeated(ways, lambda: tk.linear(x, x))
    repeated(ways, lambda: tk.linear(x, x, **double))
    monkeypatch.setattr(linear_ops, "active", lambda: seen)
    monkeypatch.setattr(linear_ops, "tune", lambda call, request: seen.append(request))
    ways.count = 0
    tk.linear(x, x)
    tk.linear(x, x, **double)
    assert len(seen) == 2
    assert not ways.count


def functions():
    x, y, mask = torch.randn(3, 8), torch.randn(3, 8), torch.rand(3, 8) < 0.5
    flat, offsets = torch.randn(8), torch.tensor([0, 4, 8])
    packed, batches = tk.PackedWeight(y), torch.randn(2, 4, 8)
    return {
        "linear": lambda: tk.linear(x, y),
        "packed": lambda: tk.linear(x, packed),
        "bmm": lambda: tk.bmm(batches, batches.mT),
        "function": lambda: tk.linear(x, y, epilogue=lambda y: y * 2),
        "topk": lambda: tuple(tk.topk(x, 2)),
        "kthvalue": lambda: tuple(tk.kthvalue(x, 2)),
        "masked": lambda: tuple(tk.masked_topk(x, mask, 2)),
        "segmented": lambda: tuple(tk.segmented_topk(flat, offsets, 2)),
        "foreach_map": lambda: tuple(tk.foreach_map(lambda a, b: a + 2 * b, [x, y], [y, x])),
    }


@pytest.mark.parametrize("name", functions())
def test_execution_graphs_and_compiled_ones_reach_it(ways, name):
    call = functions()[name]
    ways.open = False
    expected = leaves(call())
    graph = tk.capture(call)
    ways.open, ways.count = True, 0
    agree(leaves(graph.replay()), expected)
    assert ways.count == 1
    torch.compiler.reset()
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    agree(leaves(compiled()), expected)
    assert ways.count == 2
    agree(leaves(compiled()), expected)
    assert ways.count == 3


def pointwise_text(function):
    from torchyard_kernels.pointwise._recordings import recorded

    return recorded(function, "foreach_map", ([torch.zeros(1)],))[0]
