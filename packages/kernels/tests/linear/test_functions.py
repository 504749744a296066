"""Functions before and after a product, whoever runs them."""

from __future__ import annotations

import pytest
import torch

import torchyard
from packages.core.tests.torch_features import graphs_name_sources
from torchyard_kernels import PackedWeight, linear
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.linear.contract import LINEAR, LinearRequest
from torchyard_programs import ProgramError

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
RELU = LinearRequest("cpu", "float16", 1, 64, 64, epilogue='["relu", ["y"], {}]\n"%0"')
NAMES = tuple(
    candidate.name
    for candidate in torchyard.registry().decide(LINEAR, RELU).trace
    if candidate.verdict is not None and candidate.verdict.supported
)
linear_fused = torch.ops.torchyard_kernels.linear_fused.default


@pytest.fixture(params=NAMES)
def implementation(request):
    with torchyard.use(linear=request.param):
        yield request.param


def normal(*shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def eager(x, weight, bias, prologue, epilogue, gated):
    """Return the result in float64, with x rounded after the prologue as the contract says."""
    dtype = x.dtype
    x = x.double() if prologue is None else prologue(x.double()).to(dtype).double()
    y = torch.nn.functional.linear(x, weight.double(), bias.double())
    return y if epilogue is None else epilogue(*(y.chunk(2, -1) if gated else (y,)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_functions_are_computed_within_the_error_of_their_dtype(
    implementation, rows, packed, dtype
):
    x = normal(2, rows, 96, dtype=dtype)
    weight = (normal(192, 96, dtype=torch.float32, seed=1) / 10).to(dtype)
    bias = normal(192, dtype=dtype, seed=2)
    residual, scale = normal(2, rows, 192, dtype=dtype, seed=3), normal(96, dtype=dtype, seed=4)
    rms = torch.rsqrt(x.double().square().mean(-1, keepdim=True)).float()
    silu, gelu = torch.nn.functional.silu, torch.nn.functional.gelu
    held = PackedWeight(weight) if packed else weight

    def check(epilogue, prologue=None, gated=False, out_dtype=dtype):
        out = linear(x, held, bias, prologue=prologue, epilogue=epilogue)
        exact = eager(x, weight, bias, prologue, epilogue, gated)
        assert out.dtype == out_dtype
        assert out.shape == exact.shape
        assert out.is_contiguous()
        # x, y, a few steps of the function and the result are each rounded once, to their dtype.
        error = (out.double() - exact.double()).abs().max()
        assert error <= 8 * torch.finfo(dtype).eps * exact.double().abs().max()

    check(gelu)
    check(lambda y: gelu(y, approximate="tanh") * 0.5 + residual)
    check(lambda y: y.to(torch.float32) * 2, out_dtype=torch.float32)
    check(lambda gate, up: silu(gate) * up, gated=True)
    check(lambda gate, up: silu(gate) * up * scale, lambda x: x * rms * scale, gated=True)
    check(None, lambda x: x.tanh())


def test_captured_tensors_spread_over_rows_and_columns_as_torch_does(implementation):
    x, weight = torch.randn(2, 3, 8), torch.randn(10, 8)
    plain = torch.nn.functional.linear(x, weight)
    for shape in ((), (1,), (10,), (3, 1), (2, 1, 1), (3, 10), (2, 3, 10), (2, 1, 10), (1, 3, 1)):
        other = torch.randn(shape)
        out = linear(x, weight, epilogue=lambda y, other=other: y * other)
        torch.testing.assert_close(out, plain * other)
    turned = torch.randn(10, 3, 2).permute(2, 1, 0)
    torch.testing.assert_close(linear(x, weight, epilogue=lambda y: y + turned), plain + turned)


def test_a_function_that_cannot_be_recorded_is_refused_by_name():
    x, weight = torch.ones(2, 4), torch.ones(4, 4)
    with pytest.raises(ProgramError, match="epilogue"):
        linear(x, weight, epilogue=lambda y: y.cumsum(-1))
    with pytest.raises(ValueError, match=r"broadcast to \[2, 4\], got \[3, 2, 4\]"):
        linear(x, weight, epilogue=lambda y: y + torch.ones(3, 2, 4))


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ({"epilogue": "gelu"}, r"epilogue: expected a function that takes \(y\), got str"),
        ({"epilogue": lambda: 1}, r"epilogue: .* \(y\), got <lambda>\(\)"),
        ({"prologue": lambda a, b: a}, r"prologue: .* takes \(x\), got <lambda>\(a, b\)"),
        ({"epilogue": lambda y: None}, "epilogue: .* returns a tensor or a number, got None"),
        ({"epilogue": lambda y: (y, y)}, "epilogue: .* returns one tensor, got a tuple"),
    ],
    ids=["text", "no argument", "two arguments", "nothing", "tuple"],
)
def test_what_is_no_function_of_one_tensor_is_refused_by_name(functions, text):
    with pytest.raises(ProgramError, match=text):
        linear(torch.ones(2, 4), torch.ones(4, 4), **functions)


def test_an_error_of_the_functions_own_is_its_own():
    def epilogue(y):
        return y + len(3)

    with pytest.raises(TypeError, match=r"object of type 'int' has no len\(\)"):
        linear(torch.ones(2, 4), torch.ones(4, 4), epilogue=epilogue)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_captured_tensor_of_another_device_is_refused(compiled):
    x, weight = torch.ones(2, 4), torch.ones(4, 4)

    def run(scale):
        return linear(x, weight, epilogue=lambda y: y * scale)

    near = torch.full((4,), 2.0)
    for _ in range(3):
        assert torch.equal(run(near), torch.full((2, 4), 8.0))
    call = torch.compile(run, backend="eager", fullgraph=True) if compiled else run
    with pytest.raises(Exception, match=r"captured tensors on cpu, .* got one \[4\] on meta"):
        call(near.to("meta"))


def test_functions_are_differentiated_with_what_they_capture():
    scale = torch.randn(4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(8, 5, dtype=torch.float64)

    def run(x, scale):
        return linear(
            x, weight, prologue=torch.tanh, epilogue=lambda gate, up: gate.sigmoid() * up * scale
        )

    assert torch.autograd.gradcheck(run, (x, scale))


def test_compiled_functions_become_one_op_of_one_graph():
    if not graphs_name_sources():
        pytest.skip("this torch's compiled graphs have ops' lasting names")
    torch.compiler.reset()
    weight, scale, graphs = torch.randn(64, 48), torch.randn(32), []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph

    def layer(x):
        return linear(x, weight, epilogue=lambda gate, up: gate.sigmoid() * up * scale)

    x = torch.randn(3, 48)
    out = torch.compile(layer, fullgraph=True, backend=count)(x)
    torch.testing.assert_close(out, layer(x))
    (graph,) = graphs
    called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert called.count(f"torchyard_kernels.linear_fused.{OPERATORS.overload}") == 1
    assert not any(name.startswith("aten") or "sigmoid" in name for name in called)


def test_torchs_check_of_the_fused_op_passes():
    x, weight, scale = torch.randn(4, 6), torch.randn(8, 6), torch.randn(8)
    text = '["mul", ["y", "$0"], {}]\n"%0"'
    args = (x, [weight], "", None, "", None, text, [scale], False)
    result = torch.library.opcheck(linear_fused, args)
    assert set(result.values()) == {"SUCCESS"}
    torch.testing.assert_close(linear_fused(*args), x @ weight.T * scale)


def test_explain_tells_who_runs_functions():
    decision = torchyard.registry().decide(LINEAR, RELU)
    assert decision.name in {"cpu.native", "kernels.composed"}
    assert {"kernels.composed", "kernels.reference"} <= set(NAMES)
    assert "epilogue" in RELU.bucket()
