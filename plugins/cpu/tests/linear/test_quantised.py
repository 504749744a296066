"""Products with quantised weights by native kernels: every instruction set against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard import probe_platform, registry
from torchyard_cpu import _isa, _native
from torchyard_cpu.quantised import features_of, supports
from torchyard_cpu.quantised._product import NativeQuantised
from torchyard_kernels import linear, quantize
from torchyard_kernels.linear.contract import (
    LINEAR,
    LinearCall,
    LinearRequest,
    Packed,
    WeightSpec,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FORMS = [
    (bits, group, symmetric, activation)
    for bits in (8, 4)
    for group in (0, 32, 128)
    for symmetric in ((True,) if bits == 8 else (True, False))
    for activation in (None, "int8")
]
KERNELS = [name for name, _, runs in _native.quantised_kernels() if runs]


def native(kernel):
    made = NativeQuantised("")
    object.__setattr__(made, "kernel", kernel)
    return made


def call_of(x, packed, bias=None):
    return LinearCall(x, Packed(WeightSpec.parse(packed.spec_text), tuple(packed.tensors)), bias)


def excess(out, x, packed, bias, activation):
    """Return the greatest error over its bound; up to 1 passes.

    Sums are of float32 products, each of which may round once, and what is stored rounds once. An
    activation within a float32 rounding of the middle between two codes may become either. Many
    rows of bfloat16 may be multiplied by weights of groups as they are unpacked, in bfloat16.
    """
    wide = x.double()
    weight = packed.unpack().double() if packed.dtype == torch.float32 else exact(packed)
    slack = torch.zeros(*x.shape[:-1], packed.shape[0], dtype=torch.float64)
    if activation:
        step = wide.abs().amax(-1, keepdim=True) / 127
        codes = torch.where(step > 0, wide / step, 0)
        tie = ((codes - codes.floor() - 0.5).abs() < 127 * 2.0**-21).double()
        wide = codes.round() * step
        slack = (tie * step) @ weight.abs().mT
    result, size = wide @ weight.mT, wide.abs() @ weight.abs().mT
    if packed.dtype == torch.bfloat16 and packed.options["group"] and not activation:
        slack = slack + size * (2.0**-8 if len(x) >= 8 else 0)
    if bias is not None:
        result, size = result + bias.double(), size + bias.double().abs()
    # The zero of a group is taken from the sum of its codes, 15 of which are the most.
    steps = (x.shape[-1] + 4) * (16 if packed.options["asymmetric"] else 1)
    stored = torch.finfo(out.dtype)
    bound = steps * 2.0**-23 * size + slack + stored.eps / 2 * result.abs() + stored.smallest_normal
    return float(((out.double() - result).abs() / bound).nan_to_num(nan=float("inf")).max())


def exact(packed):
    """The weight that codes stand for, before it is rounded to 16 bits."""
    wide = type(packed).from_state(
        {
            **packed.state_dict(),
            "spec": torch.tensor(
                list(packed.spec_text.replace(str(packed.dtype)[6:], "float32").encode()),
                dtype=torch.uint8,
            ),
        }
    )
    return wide.unpack().double()


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=60)
@given(
    st.sampled_from([1, 2, 3, 5, 6, 7, 8, 9, 13, 16, 17, 31, 32, 33, 49, 128, 131]),
    st.integers(1, 200),
    st.integers(1, 400) | st.sampled_from([1024, 1032, 2055]),
    st.sampled_from(FORMS),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.integers(0, 1000),
)
def test_products_are_those_of_float64(kernel, rows, outputs, depth, form, dtype, biased, seed):
    bits, group, symmetric, activation = form
    torch.manual_seed(seed)
    weight = (torch.randn(outputs, depth) * torch.rand(outputs, 1)).to(dtype)
    x = torch.randn(rows, depth).to(dtype)
    bias = torch.randn(outputs).to(dtype) if biased else None
    packed = quantize(
        weight, bits=bits, group_size=group, symmetric=symmetric, activation=activation
    )
    out = native(kernel)(call_of(x, packed, bias))
    assert out.shape == (rows, outputs)
    assert out.dtype == dtype
    assert excess(out, x, packed, bias, activation) <= 1


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_long_sums_and_many_rows(kernel, form):
    bits, group, symmetric, activation = form
    torch.manual_seed(0)
    weight, x = torch.randn(65, 9000), torch.randn(19, 9000)
    packed = quantize(
        weight, bits=bits, group_size=group, symmetric=symmetric, activation=activation
    )
    for dtype in (torch.float32, torch.bfloat16):
        low = quantize(
            weight.to(dtype),
            bits=bits,
            group_size=group,
            symmetric=symmetric,
            activation=activation,
        )
        packed = packed if dtype == torch.float32 else low
        out = native(kernel)(call_of(x.to(dtype), packed))
        assert excess(out, x.to(dtype), packed, None, activation) <= 1


@pytest.mark.parametrize("activation", [None, "int8"])
def test_a_row_has_the_same_bits_whatever_rows_are_beside_it(activation):
    x = torch.randn(7, 500)
    packed = quantize(torch.randn(300, 500), bits=4, activation=activation)
    whole = linear(x, packed)
    for row in range(7):
        assert torch.allclose(linear(x[row], packed), whole[row], rtol=1e-5, atol=1e-4)
        if activation:
            assert torch.equal(linear(x[row], packed), whole[row])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", [1028, 1050])
@pytest.mark.parametrize("bits", [8, 4])
def test_rows_beyond_a_thousand_are_those_of_a_call_of_their_own(kernel, rows, bits):
    torch.manual_seed(0)
    packed = quantize(torch.randn(300, 72).bfloat16(), bits=bits)
    x = torch.randn(rows, 72).bfloat16()
    run = native(kernel)
    out = run(call_of(x, packed))
    assert excess(out, x, packed, None, None) <= 1
    assert torch.equal(out[1024:], run(call_of(x[1024:], packed)))


@pytest.mark.parametrize("activation", [None, "int8"])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [9, 40, 130])
def test_what_is_not_finite_stays_in_its_row(kernel, rows, dtype, bits, activation):
    packed = quantize(torch.randn(70, 100).to(dtype), bits=bits, activation=activation)
    x = torch.randn(rows, 100).to(dtype)
    run = native(kernel)
    clean = run(call_of(x, packed))
    x[2, 3], x[4, 99] = float("nan"), float("inf")
    out = run(call_of(x, packed))
    others = [row for row in range(rows) if row not in (2, 4)]
    assert torch.equal(out[others], clean[others])
    assert out[2].isnan().all()
    assert not out[4].isfinite().any()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_an_infinity_is_multiplied_as_in_float64(kernel, rows, dtype, bits):
    packed = quantize(torch.randn(300, 100).to(dtype), bits=bits)
    x = torch.randn(rows, 100).to(dtype)
    x[0, 41] = float("-inf")
    out = native(kernel)(call_of(x, packed))
    exact = x.double() @ packed.unpack().double().T
    finite = exact.isfinite()
    assert torch.equal(out.isfinite(), finite)
    assert not finite[0].any()
    assert finite[1:].all()
    assert torch.equal(out[0].isnan(), exact[0].isnan())
    assert torch.equal(out[0][exact[0].isinf()].double(), exact[0][exact[0].isinf()])


@pytest.mark.parametrize("rows", [1, 40, 130])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("dtype", "activation"), [(torch.float32, "int8"), (torch.bfloat16, None)], ids=str
)
def test_threads_do_not_change_the_bits(dtype, activation, bits, rows):
    packed = quantize(torch.randn(1000, 600).to(dtype), bits=bits, activation=activation)
    x = torch.randn(rows, 600).to(dtype)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(linear(x, packed))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_strides_and_shapes_of_x():
    packed = quantize(torch.randn(70, 100), bits=8)
    x = torch.randn(2, 3, 100)
    whole = linear(x, packed)
    assert whole.shape == (2, 3, 70)
    flat = linear(x.reshape(6, 100), packed).reshape(2, 3, 70)
    assert torch.equal(whole, flat)
    wide = torch.randn(6, 150)
    wide[:, 25:125] = x.reshape(6, 100)
    assert torch.equal(linear(wide[:, 25:125], packed).reshape(2, 3, 70), whole)
    assert torch.equal(linear(x.transpose(0, 1), packed), whole.transpose(0, 1))
    assert linear(x[0, 0], packed).shape == (70,)
    assert linear(x[:0], packed).shape == (0, 3, 70)


def test_every_format_is_computed_by_the_native_kernels():
    asked = 0
    for weight in ("int8", "int4"):
        for dtype in ("float32", "bfloat16", "float16"):
            options = (("activation", 0), ("asymmetric", 0), ("group", 64))
            request = LinearRequest("cpu", dtype, 1, 64, 64, weight=weight, weight_options=options)
            assert registry().decide(LINEAR, request).chosen.name == "cpu.quantised"
            asked += 1
    assert asked == 6


def test_other_weights_are_declined_with_the_reason():
    platform = probe_platform()
    plain = supports(LinearRequest("cpu", "float32", 1, 64, 64), platform)
    assert not plain.supported
    assert "multiplies weights of int8 and int4, got plain" in plain.text
    wide = LinearRequest("cpu", "float64", 1, 64, 64, weight="int8")
    assert "got float64" in supports(wide, platform).text
    odd = LinearRequest("cpu", "float32", 1, 8, 8, weight="int4", weight_options=(("group", 48),))
    assert "group: expected one of" in supports(odd, platform).text
    unknown = supports(LinearRequest("cpu", "float32", 1, 8, 8, weight="int8"), platform, isa="mmx")
    assert "expected one of" in unknown.text


def test_an_instruction_set_holds_the_kernel():
    everything = frozenset().union(*_isa.feature_sets().values()) | {"avx512_vnni"}
    for isa in ("avx512bf16", "avx512", "avx2", "scalar"):
        name = _native.select_quantised(features_of(isa, everything))
        known = [kernel for kernel, _, _ in _native.quantised_kernels()]
        if f"quantised_linear_{isa}" in known:
            assert name == f"quantised_linear_{isa}"
    assert _native.select_quantised(frozenset()) == "quantised_linear_scalar"


def test_arguments_that_make_no_sense_are_refused():
    good = (1, 1, 8, 0, 8, 0, 0)
    with pytest.raises(ValueError, match="kernel: expected a name from quantised_kernels"):
        _native.quantised_linear("none", good, (0, 0), (0, 0, 0, 0), (0, 0), 1)
    for position, value in ((0, -1), (2, 0), (3, 3), (4, 5), (5, 7)):
        sizes = (*good[:position], value, *good[position + 1 :])
        with pytest.raises(ValueError, match="sizes: expected rows"):
            _native.quantised_linear(KERNELS[0], sizes, (0, 0), (0, 0, 0, 0), (0, 0), 1)
    with pytest.raises(TypeError, match="expected 6 arguments, got 0"):
        _native.quantised_linear()
