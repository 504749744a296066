"""Every implementation of linear/1 for cpu computes the product, whatever the layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torchyard
from torchyard import ContractId
from torchyard_kernels import PackedWeight, bmm, linear, matmul
from torchyard_kernels.linear.contract import LINEAR, LinearRequest

from .error import excess

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def names():
    request = LinearRequest("cpu", "float32", 4, 4, 4)
    decision = torchyard.registry().decide(LINEAR, request)
    return tuple(c.name for c in decision.trace if c.verdict is not None and c.verdict.supported)


def normal(*shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


@pytest.fixture(params=names())
def implementation(request):
    with torchyard.use(linear=request.param):
        yield request.param


def test_the_portable_implementations_and_the_reference_are_tested():
    assert {"kernels.torch", "kernels.reference"} <= set(names())


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    rows=st.integers(0, 40),
    outputs=st.integers(0, 140),
    depth=st.integers(0, 600),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(["plain", "packed", "transposed", "strided"]),
    rows_of=st.sampled_from(["plain", "strided", "transposed", "batched", "swapped"]),
    biased=st.booleans(),
)
def test_any_shape_and_layout_is_within_the_error_of_float32_sums(
    implementation, rows, outputs, depth, dtype, layout, rows_of, biased
):
    weight = normal(outputs, depth, dtype=dtype)
    given_weight = {
        "plain": lambda: weight,
        "packed": lambda: PackedWeight(weight),
        "transposed": lambda: weight.t().contiguous().t(),
        "strided": lambda: torch.cat([weight, weight], 1)[:, :depth],
    }[layout]()
    x = normal(rows, depth, dtype=dtype, seed=1)
    if rows_of == "strided":
        x = torch.cat([x, x], 1)[:, :depth]
    elif rows_of == "transposed":
        x = x.t().contiguous().t()
    elif rows_of == "batched":
        x = torch.stack([x, x + 1, x - 1])
    elif rows_of == "swapped":
        x = torch.stack([x, x + 1, x - 1], 1).transpose(0, 1)
    bias = normal(outputs, dtype=dtype, seed=2) if biased else None
    out = linear(x, given_weight, bias)
    assert out.shape == (*x.shape[:-1], outputs)
    assert out.dtype == dtype
    assert out.is_contiguous()
    assert excess(out, x, weight, bias) <= 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((7,), (7,)),
        ((7,), (7, 5)),
        ((3, 7), (7,)),
        ((3, 7), (7, 5)),
        ((2, 4, 3, 7), (7, 5)),
        ((2, 1, 3, 7), (4, 7, 5)),
        ((3, 7), (4, 7, 5)),
        ((7,), (4, 7, 5)),
        ((4, 3, 7), (7,)),
        ((2, 0, 7), (2, 7, 5)),
    ],
    ids=str,
)
def test_matmul_has_torchs_shapes_and_values(implementation, dtype, a, b):
    left, right = normal(*a, dtype=dtype), normal(*b, dtype=dtype, seed=1)
    exact = torch.matmul(left.double(), right.double())
    out = matmul(left, right)
    assert out.shape == exact.shape
    size = torch.matmul(left.double().abs(), right.double().abs())
    bound = 9 * torch.finfo(torch.float32).eps * size + torch.finfo(dtype).eps / 2 * exact.abs()
    assert ((out.double() - exact).abs() <= bound + torch.finfo(dtype).smallest_normal).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bmm_multiplies_each_pair_of_any_strides(implementation, dtype):
    a = normal(5, 9, 33, dtype=dtype)
    b = normal(5, 70, 33, dtype=dtype, seed=1)
    assert excess(bmm(a, b.mT), a, b, None) <= 1
    strided = b.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(bmm(a, strided.mT), bmm(a, b.mT))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_infinity_of_one_row_stay_in_it(implementation, dtype):
    x, weight = normal(20, 70, dtype=dtype), normal(45, 70, dtype=dtype, seed=1)
    clean = linear(x, weight)
    x[3, 69], x[17, 0] = float("nan"), float("inf")
    for given_weight in (weight, PackedWeight(weight)):
        out = linear(x, given_weight)
        rest = [row for row in range(20) if row not in (3, 17)]
        assert out[3].isnan().all()
        assert out[17].isinf().all()
        assert excess(out[rest], x[rest], weight, None) <= 1
        assert out[rest].isfinite().all()
    assert clean.isfinite().all()


@pytest.mark.parametrize("shape", [(0, 7), (3, 0, 7), (0, 3, 7), (3, 0, 2, 7), (2, 0)])
@pytest.mark.parametrize("outputs", [0, 1, 5])
def test_gradients_of_no_rows_are_zero(implementation, shape, outputs):
    x = torch.ones(shape, requires_grad=True)
    weight, bias = (torch.ones(s, requires_grad=True) for s in ((outputs, shape[-1]), (outputs,)))
    # The gradient of a sum is expanded: all of its strides are zero.
    found = torch.autograd.grad(linear(x, weight, bias).sum(), (x, weight, bias))
    expected = torch.autograd.grad(
        torch.nn.functional.linear(x, weight, bias).sum(), (x, weight, bias)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (2, 7), (3, 0, 7), (2, 3, 7)])
def test_a_weight_of_one_dimension_gives_one_output_without_one(implementation, dtype, shape):
    x, weight = (normal(*s, dtype=dtype, seed=3).requires_grad_() for s in (shape, (7,)))
    bias = torch.tensor(0.5, dtype=dtype)
    for added, row in ((None, None), (bias, bias[None])):
        found = linear(x, weight, added, epilogue=torch.tanh)
        expected = linear(x, weight[None], row, epilogue=torch.tanh)[..., 0]
        assert found.shape == torch.nn.functional.linear(x, weight).shape
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    gradient = torch.autograd.grad(linear(x, weight, bias).sum(), weight)[0]
    torch.testing.assert_close(gradient, x.detach().reshape(-1, 7).float().sum(0).to(dtype))
    with pytest.raises(ValueError, match=r"linear: bias: expected \[\], got \[1\]"):
        linear(x, weight, bias[None])
    with pytest.raises(ValueError, match=r"weight: expected \[N, K\] or \[K\], got shape"):
        linear(x, weight[None, None])


def test_float64_is_computed_in_float64():
    x, weight = normal(5, 31, dtype=torch.float64), normal(6, 31, dtype=torch.float64, seed=1)
    assert excess(linear(x, weight), x, weight, None) <= 1


ELSEWHERE = torch.ones(4, 5, device="meta")


class TestErrors:
    """A call that cannot be computed names the argument, what was expected and what came."""

    @pytest.mark.parametrize(
        ("x", "weight", "bias", "kind", "text"),
        [
            (torch.ones(2, 3), torch.ones(4, 5), None, ValueError, r"x: expected .* of 5"),
            (torch.tensor(1.0), torch.ones(4, 5), None, ValueError, r"x: expected .* of 5"),
            (
                torch.ones(2, 5),
                torch.ones(1, 1, 5),
                None,
                ValueError,
                r"weight: expected \[N, K\] or \[K\], got shape \[1, 1, 5\]",
            ),
            (torch.ones(2, 5), torch.ones(4, 5).half(), None, TypeError, r"weight: .*dtype of x"),
            (torch.ones(2, 5).int(), torch.ones(4, 5), None, TypeError, r"x: expected float16"),
            (torch.ones(2, 5), torch.ones(4, 5), torch.ones(5), ValueError, r"bias: expected \[4"),
            (torch.ones(2, 5), torch.ones(4, 5), torch.ones(4).half(), TypeError, r"bias: .*x"),
            (
                torch.ones(2, 5),
                [1.0],
                None,
                TypeError,
                r"weight: expected a dense tensor \[N, K\] or \[K\], got a list",
            ),
            (torch.ones(2, 5), ELSEWHERE, None, TypeError, "weight: .* of x, cpu, got meta; move"),
            (torch.ones(2, 5), torch.ones(4, 5), ELSEWHERE[:, 0], TypeError, "bias: .*, got meta"),
            (torch.ones(2, 5).to_sparse(), torch.ones(4, 5), None, TypeError, "x: .* dense tensor"),
        ],
    )
    def test_linear(self, x, weight, bias, kind, text):
        with pytest.raises(kind, match=text):
            linear(x, weight, bias)

    def test_matmul_and_bmm(self):
        with pytest.raises(
            ValueError, match=r"matmul: b: expected .* for a \[2, 3\], got \[4, 5\]"
        ):
            matmul(torch.ones(2, 3), torch.ones(4, 5))
        with pytest.raises(ValueError, match="batch dimensions that broadcast"):
            matmul(torch.ones(2, 3, 4), torch.ones(3, 4, 5))
        with pytest.raises(ValueError, match=r"bmm: [ab]: expected \["):
            bmm(torch.ones(2, 3, 4), torch.ones(3, 4, 5))
        with pytest.raises(TypeError, match="matmul: b: expected the device of a, cpu, got meta"):
            matmul(torch.ones(2, 4), ELSEWHERE)
        with pytest.raises(TypeError, match="b: expected the dtype of a"):
            bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5).half())

    def test_halves_of_an_odd_number_of_outputs(self):
        with pytest.raises(ValueError, match="even number of outputs, got 5"):
            linear(torch.ones(2, 3), torch.ones(5, 3), epilogue=lambda gate, up: gate * up)


class TestExplanation:
    """A person can ask by text what a call would."""

    def test_fields_become_a_request(self):
        definition = torchyard.registry().definition(ContractId.parse(LINEAR))
        request = definition.request({"shape": "17,64,32", "weight": "panels", "dtype": "bfloat16"})
        assert request == LinearRequest("cpu", "bfloat16", 32, 64, 32, weight="panels")
        assert request.bucket() == "cpu bfloat16 1x32x64x32 weight=panels"

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"shape": "1,2"}, "shape: expected 3 sizes"),
            ({"rows": "1"}, "linear/1 has no field rows"),
            ({"bias": "maybe"}, "bias: expected true or false"),
            ({"weight_options": "group"}, "weight_options: expected name=value"),
        ],
    )
    def test_a_wrong_field_is_named(self, fields, text):
        with pytest.raises(ValueError, match=text):
            torchyard.registry().definition(ContractId.parse(LINEAR)).request(fields)
