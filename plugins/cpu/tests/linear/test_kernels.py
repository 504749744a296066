"""Every linear kernel that this processor can run is right, whatever the threads and the memory."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard import Platform, ReasonCode
from torchyard_cpu import _isa, _native
from torchyard_cpu.linear import supports
from torchyard_cpu.linear._product import row_places, weight_places
from torchyard_kernels import PackedWeight
from torchyard_kernels.linear.contract import LinearRequest

FEATURES = frozenset(_native.cpu_features())
KERNELS = [row for row in _native.linear_kernels() if set(row[3]) <= FEATURES]
NAMES = [row[0] for row in KERNELS]


def product(kernel, x, weight, bias=None, *, packed=False, threads=1) -> Tensor:
    """Run a kernel into memory full of NaN, and check that it writes no byte beyond."""
    outputs, depth = weight.shape[-2:]
    batches = weight.shape[0] if weight.ndim == 3 else 1
    room = torch.full((math.prod(x.shape[:-1]) * outputs + 64,), math.nan, dtype=x.dtype)
    if packed:
        tensors = PackedWeight(weight).tensors
        place = tensors[0].data_ptr(), 1, 0, 0, 0
    else:
        weight, place = weight_places(weight)
    x, rows = row_places(x, batched=weight.ndim == 3)
    sizes = batches, math.prod(x.shape[:-1]) // max(1, batches), outputs, depth
    address = 0 if bias is None else bias.data_ptr()
    _native.linear_forward(
        kernel, sizes, rows, place, address, room.data_ptr(), None, None, threads, True
    )
    assert room[-64:].isnan().all()
    return room[:-64].reshape(*x.shape[:-1], outputs)


def normal(*shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def excess(out, x, weight, bias=None) -> float:
    """Return the greatest error over the first-order bound of float32 sums; up to 1 passes."""
    x64, weight64 = x.double(), weight.double()
    exact, size = x64 @ weight64.mT, x64.abs() @ weight64.abs().mT
    if bias is not None:
        exact, size = exact + bias.double(), size + bias.double().abs()
    stored = torch.finfo(out.dtype)
    bound = (x.shape[-1] + 2.0) * torch.finfo(torch.float32).eps * size
    bound += stored.eps / 2 * exact.abs() + stored.smallest_normal
    error = (out.double() - exact).abs() / bound
    return 0.0 if not out.numel() else float(error.nan_to_num(nan=math.inf).max())


def test_each_instruction_set_of_the_table_is_known_and_the_best_are_chosen():
    assert {row[2] for row in _native.linear_kernels()} <= set(_isa.feature_sets())
    for name, dtype, isa, needed in _native.linear_kernels():
        assert frozenset(needed) == _isa.feature_sets()[isa]
        assert _native.select_linear(dtype, needed, isa) == name
    assert _native.select_linear("float16", [], None) == "linear_f16_6x8_scalar"
    assert _native.select_linear("int8", FEATURES, None) is None


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    rows=st.one_of(st.integers(1, 33), st.integers(29, 70)),
    outputs=st.integers(1, 150),
    depth=st.one_of(st.integers(0, 90), st.integers(500, 1100)),
    layout=st.sampled_from(["plain", "packed", "transposed"]),
    batches=st.sampled_from([0, 0, 1, 3]),
    biased=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_any_sizes_are_within_the_error_of_float32_sums(
    kernel, rows, outputs, depth, layout, batches, biased, threads
):
    dtype = getattr(torch, kernel[1])
    many = (batches,) if batches and layout != "packed" else ()
    x = normal(*many, rows, depth, dtype=dtype, seed=1)
    weight = normal(*many, outputs, depth, dtype=dtype)
    given_weight = weight.mT.contiguous().mT if layout == "transposed" else weight
    bias = normal(outputs, dtype=dtype, seed=2) if biased else None
    packed = layout == "packed"
    out = product(kernel[0], x, given_weight, bias, packed=packed, threads=threads)
    assert excess(out, x, weight, bias) <= 1


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
@pytest.mark.parametrize("rows", [1, 3, 16, 40])
@pytest.mark.parametrize("packed", [False, True])
def test_results_have_the_same_bits_for_any_number_of_threads(kernel, rows, packed):
    dtype = getattr(torch, kernel[1])
    x, weight = normal(rows, 700, dtype=dtype), normal(999, 700, dtype=dtype, seed=1)
    one = product(kernel[0], x, weight, packed=packed, threads=1)
    for threads in (2, 5):
        many = product(kernel[0], x, weight, packed=packed, threads=threads)
        assert torch.equal(many, one)


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_more_rows_than_are_packed_at_once_and_more_batches(kernel):
    dtype = getattr(torch, kernel[1])
    # 4 Mi words of x are packed at a time: two passes over rows here, and over batches below.
    x, weight = normal(600, 8200, dtype=dtype), normal(5, 8200, dtype=dtype, seed=1)
    assert excess(product(kernel[0], x, weight, threads=2), x, weight) <= 1
    x, weight = normal(5, 150, 8200, dtype=dtype), normal(5, 3, 8200, dtype=dtype, seed=1)
    assert excess(product(kernel[0], x, weight, threads=2), x, weight) <= 1


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
@settings(
    max_examples=6,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    panels=st.integers(1, 4),
    outputs=st.integers(1, 150),
    # A weight of pairs has half as many words.
    depth=st.integers(1000, 1600),
    batches=st.integers(1, 2),
    biased=st.booleans(),
    threads=st.sampled_from([1, 2, 5]),
)
def test_rows_that_fill_panels_meet_a_weight_that_is_not_turned(
    kernel, panels, outputs, depth, batches, biased, threads
):
    dtype = getattr(torch, kernel[1])
    depth *= 2 if dtype == torch.bfloat16 else 1
    x = normal(batches, 32 * panels, depth, dtype=dtype, seed=1)
    weight = normal(batches, outputs, 2, depth, dtype=dtype)[:, :, 0]
    bias = normal(outputs, dtype=dtype, seed=2) if biased else None
    out = product(kernel[0], x, weight, bias, threads=threads)
    assert excess(out, x, weight, bias) <= 1
    one = product(kernel[0], x, weight, bias, threads=1)
    assert torch.equal(out, one)


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_nan_and_infinity_stay_in_their_row_and_output_where_rows_fill_panels(kernel):
    dtype = getattr(torch, kernel[1])
    x, weight = normal(64, 2100, dtype=dtype), normal(70, 2100, dtype=dtype, seed=1)
    x[2, 2099], weight[33, 0] = math.nan, math.inf
    out = product(kernel[0], x, weight)
    rows = [row for row in range(64) if row != 2]
    outputs = [output for output in range(70) if output != 33]
    assert out[2].isnan().all()
    assert out[rows, 33].isinf().all()
    assert excess(out[rows][:, outputs], x[rows], weight[outputs]) <= 1


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
@pytest.mark.parametrize("rows", [4, 13])
def test_few_rows_meet_long_rows_of_a_weight_that_lie_apart(kernel, rows):
    dtype = getattr(torch, kernel[1])
    x, weight = normal(rows, 9001, dtype=dtype), normal(43, 2, 9001, dtype=dtype, seed=1)[:, 0]
    assert excess(product(kernel[0], x, weight, threads=2), x, weight) <= 1


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
@pytest.mark.parametrize("packed", [False, True])
# A kernel may leave few rows to another; more rows share a block with one that is not finite.
@pytest.mark.parametrize("count", [9, 45])
def test_nan_and_infinity_stay_in_their_row_and_output(kernel, packed, count):
    dtype = getattr(torch, kernel[1])
    x, weight = normal(count, 45, dtype=dtype), normal(70, 45, dtype=dtype, seed=1)
    x[2, 44], weight[33, 0] = math.nan, math.inf
    out = product(kernel[0], x, weight, packed=packed)
    rows = [row for row in range(count) if row != 2]
    outputs = [output for output in range(70) if output != 33]
    assert out[2].isnan().all()
    assert out[rows, 33].isinf().all()
    assert excess(out[rows][:, outputs], x[rows], weight[outputs]) <= 1


@pytest.mark.parametrize("kernel", [row for row in KERNELS if row[1] == "float16"], ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rows", [3, 40])
def test_subnormal_float16_and_results_beyond_it_are_preserved(kernel, packed, rows):
    tiny = torch.full((rows, 8), 2.0**-24, dtype=torch.float16)
    out = product(kernel[0], tiny, torch.eye(8, dtype=torch.float16), packed=packed)
    assert torch.equal(out, tiny)
    large = torch.full((rows, 8), 60000.0, dtype=torch.float16)
    out = product(kernel[0], large, torch.eye(8, dtype=torch.float16) * 2, packed=packed)
    assert torch.equal(out, torch.full_like(out, math.inf))


@pytest.mark.parametrize("kernel", [row for row in KERNELS if row[1] == "float16"], ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("infinite", [False, True])
def test_every_finite_float16_is_multiplied_with_all_its_bits(kernel, packed, infinite):
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    x = torch.where(bits.isfinite(), bits, 0).reshape(2048, 32)
    if (
        infinite
    ):  # in each block of rows, so that none is multiplied as blocks of finite numbers are
        x[::14, 5] = math.inf
    out = product(kernel[0], x, torch.eye(32, dtype=torch.float16), packed=packed, threads=2)
    mixed = x.isinf().any(-1)
    # Infinity times zero is NaN, but times one, in its own place, it stays infinite.
    assert torch.equal(out[~mixed], x[~mixed])
    assert torch.equal(out[mixed, 5], x[mixed, 5])
    assert out[mixed][:, :5].isnan().all()


class TestErrors:
    """What a kernel cannot do is refused before anything is read."""

    def test_arguments(self):
        kernel = "linear_f32_6x8_scalar"
        x = torch.ones(1, 4)
        rows, place = (x.data_ptr(), 0, 0, 1, 4), (x.data_ptr(), 0, 0, 4, 1)
        run = _native.linear_forward
        with pytest.raises(TypeError, match="expected 10 arguments, got 1"):
            run(kernel)
        with pytest.raises(ValueError, match=r"expected a name from linear_kernels\(\), got 'x'"):
            run("x", (1, 1, 1, 4), rows, place, 0, 0, None, None, 1, False)
        with pytest.raises(ValueError, match="sizes: expected sizes of at least 0"):
            run(kernel, (1, -1, 1, 4), rows, place, 0, 0, None, None, 1, False)
        with pytest.raises(ValueError, match="at least 1 inner row, got 0"):
            run(kernel, (1, 1, 1, 4), (0, 0, 0, 0, 0), place, 0, 0, None, None, 1, False)
        with pytest.raises(ValueError, match="weight: expected a stride of 1, got 4 and 2"):
            run(kernel, (1, 1, 1, 4), rows, (0, 0, 0, 4, 2), 0, 0, None, None, 1, False)
        with pytest.raises(ValueError, match="threads: expected 1 to 1024, got 0"):
            run(kernel, (1, 1, 1, 4), rows, place, 0, 0, None, None, 0, False)

    @pytest.mark.parametrize(
        ("change", "isa", "code", "text"),
        [
            ({"device": "cuda"}, "", ReasonCode.DEVICE, "expected tensors on cpu"),
            ({"dtype": "float64"}, "", ReasonCode.DTYPE, "got float64"),
            ({"weight": "other"}, "", ReasonCode.LAYOUT, "got other"),
            ({}, "avx1024", ReasonCode.ISA, "expected one of amx, avx512bf16"),
            ({}, "avx512", ReasonCode.ISA, "this processor lacks avx512bw"),
        ],
    )
    def test_verdicts(self, change, isa, code, text):
        fields = {"device": "cpu", "dtype": "float16", "rows": 1, "outputs": 4, "depth": 4}
        platform = Platform("Linux", "x86_64", frozenset(), 2, "3.12", "2.13.0", frozenset({"cpu"}))
        verdict = supports(LinearRequest(**{**fields, **change}), platform, isa=isa)
        assert verdict.code == code
        assert text in verdict.text
