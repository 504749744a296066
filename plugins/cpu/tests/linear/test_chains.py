"""What a layer does to one row, run by native code in one call."""

from __future__ import annotations

import math
from array import array

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard_cpu import _isa, _native
from torchyard_cpu._chains import native_chain
from torchyard_cpu.linear._product import NativeLinear
from torchyard_cpu.quantised._product import NativeQuantised
from torchyard_kernels import PackedWeight, linear
from torchyard_kernels._accelerate.decoder._form import DecoderForm
from torchyard_kernels._accelerate.decoder._row_chains import after_attention, before_attention
from torchyard_kernels.linear.contract import Packed, WeightSpec
from torchyard_kernels.linear.contract.chain import OUTPUT, Chain, Copy, Form, Place, Product

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FORM = DecoderForm((1e-6, 1e-5), (), (), "cache")
CPU = torch.device("cpu")
ISAS = [""] + [
    isa
    for isa in ("scalar", "avx2", "avx512")
    if _isa.feature_sets()[isa] <= set(_native.cpu_features())
]


def packed_of(weight, name="panels", **options):
    packed = PackedWeight(weight, name, **options)
    return packed, Packed(WeightSpec.parse(packed.spec_text), tuple(packed.tensors))


def kernel_of(name, isa=""):
    return NativeLinear(isa) if name == "panels" else NativeQuantised(isa)


def product_chain(weight, bias=False):
    spec = weight.spec
    forms = [Form(spec.dtype, (1, spec.columns), (spec.columns, 1))]
    if bias:
        forms.append(Form(spec.dtype, (spec.rows,), (1,)))
    stage = Product(Place(0), Place(OUTPUT), weight, Place(1) if bias else None)
    return Chain("cpu", tuple(forms), Form(spec.dtype, (1, spec.rows), (0, 0)), 0, (stage,))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("panels", {}),
        ("int8", {}),
        ("int8", {"activation": 8}),
        ("int4", {"group": 32}),
        ("int4", {"group": 32, "activation": 8, "asymmetric": 1}),
    ],
)
def test_a_product_has_the_bits_of_linear(name, options, dtype, bias):
    torch.manual_seed(0)
    module, weight = packed_of(torch.randn(70, 96).to(dtype), name, **options)
    x, offset = torch.randn(1, 96).to(dtype), torch.randn(70).to(dtype)
    run = kernel_of(name).chain(product_chain(weight, bias))
    found = run(x, offset) if bias else run(x)
    assert torch.equal(found, linear(x, module, offset if bias else None))


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def normed(x, weight, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


@settings(max_examples=15, deadline=None)
@given(
    size=st.integers(1, 40).map(lambda half: 2 * half),
    groups=st.integers(1, 3),
    shared=st.integers(1, 4),
    width=st.integers(1, 90),
    dtype=st.sampled_from(DTYPES),
    bias=st.booleans(),
    isa=st.sampled_from(ISAS),
)
def test_what_comes_before_attention_is_near_float64(size, groups, shared, width, dtype, bias, isa):
    torch.manual_seed(size * 91 + width)
    heads = groups * shared, groups
    outputs = (heads[0] + 2 * heads[1]) * size
    weight = (torch.randn(outputs, width) / math.sqrt(width)).to(dtype)
    offset = torch.randn(outputs).to(dtype) if bias else None
    _, packed = packed_of(weight)
    chain = before_attention(dtype, CPU, width, size, heads, (packed, offset), FORM)
    run = NativeLinear(isa).chain(chain)
    x, scale = torch.randn(1, 1, width).to(dtype), torch.randn(width).to(dtype)
    cos, sin = torch.randn(2, 1, 1, size).to(dtype)
    room = torch.full((2, 1, heads[1], 5, size), math.nan).to(dtype)
    key, value = (part.narrow(2, 3, 1) for part in room)
    query = run(x, scale, cos, sin, key, value, *([offset] if bias else []))
    wide = [tensor.double() for tensor in (x, scale, weight, cos, sin)]
    norm = normed(wide[0][0], wide[1], 1e-6)
    product = norm @ wide[2].T
    # What is rounded: of few numbers the sums may be small, and their terms not.
    terms = (norm.square() @ wide[2].T.square()).sqrt()
    if bias:
        product = product + offset.double()
        terms = terms + offset.double().abs()
    parts, sizes = (whole.view(-1, 1, size).split((*heads, heads[1])) for whole in (product, terms))
    expected = (*(rotated(part, wide[3][0], wide[4][0]) for part in parts[:2]), parts[2])
    turned = float((wide[3].abs() + wide[4].abs()).max())
    reaches = [
        float(part.norm()) * times for part, times in zip(sizes, (turned, turned, 1), strict=True)
    ]
    eps = torch.finfo(dtype).eps
    # Rounded as the norm, the product and the rotation are stored; float32 sums over the width.
    for found, exact, reach in zip((query, key, value), expected, reaches, strict=True):
        assert found.shape[1:] == (len(exact), 1, size)
        error = (found[0].double() - exact).norm() / reach
        assert error < 4 * eps + 8 * torch.finfo(torch.float32).eps * math.sqrt(width)
    # Of the cache nothing else is written.
    assert room[:, :, :, :3].isnan().all()
    assert room[:, :, :, 4:].isnan().all()


@settings(max_examples=15, deadline=None)
@given(
    width=st.integers(1, 80),
    attended=st.integers(1, 80),
    inner=st.integers(1, 160),
    dtype=st.sampled_from(DTYPES),
    name=st.sampled_from(["panels", "int8", "int4"]),
    isa=st.sampled_from(ISAS),
)
def test_what_comes_after_attention_is_near_float64(width, attended, inner, dtype, name, isa):
    torch.manual_seed(width * 81 + inner)
    shapes = (width, attended), (2 * inner, width), (width, inner)
    held = [packed_of((torch.randn(s) / math.sqrt(s[1])).to(dtype), name) for s in shapes]
    weights = tuple((packed, None) for _, packed in held)
    chain = after_attention(dtype, CPU, width, weights, torch.nn.functional.silu, FORM)
    run = kernel_of(name, isa).chain(chain)
    a, x = torch.randn(1, 1, attended).to(dtype), torch.randn(1, 1, width).to(dtype)
    scale = torch.randn(width).to(dtype)
    found = run(a, x, scale)
    o, both, down = (module.unpack().double() for module, _ in held)
    hidden = x.double() + a.double() @ o.T
    gate, up = (normed(hidden, scale.double(), 1e-5) @ both.T).chunk(2, -1)
    exact = hidden + (torch.nn.functional.silu(gate) * up) @ down.T
    eps = torch.finfo(dtype).eps
    assert found.shape == (1, 1, width)
    # The scale of a row of one or two values turns a rounded sum near 0 around: an absolute term.
    error = (found.double() - exact).norm()
    assert error < 16 * eps * (exact.norm() + hidden.norm() + math.sqrt(width))


class TestRefused:
    """Tensors that do not fit."""

    @pytest.fixture
    def run(self):
        copy = Copy(Place(0, 0, 16), Place(1, 0, -2, 4), 2, 16)
        _, weight = packed_of(torch.eye(8))
        product = Product(Place(0), Place(OUTPUT), weight)
        inputs = Form("float32", (1, 8), (8, 1)), Form("float32", (1, 2, 4), (-1, -1, 1))
        made = Form("float32", (1, 8), (0, 0))
        found = NativeLinear("").chain(Chain("cpu", inputs, made, 0, (copy, product)))
        assert found is not None
        return found

    def test_inputs_that_fit_are_computed(self, run):
        x, to = torch.randn(1, 8), torch.zeros(1, 2, 6)
        assert torch.equal(run(x, to[..., :4]), x)
        assert torch.equal(to[..., :4].flatten(), x.flatten())
        assert not to[..., 4:].any()

    @pytest.mark.parametrize(
        "x",
        [
            torch.randn(8),
            torch.randn(1, 9),
            torch.randn(2, 8),
            torch.randn(1, 8).double(),
            torch.randn(1, 16)[:, ::2],
            torch.randn(1, 8, dtype=torch.complex64).conj().imag,
            torch.randn(1, 8).to("meta"),
            torch.randn(1, 8).to_sparse(),
            torch.randn(1, 8).requires_grad_(),
            torch.randn(1, 8).as_subclass(type("Own", (torch.Tensor,), {})),
            None,
            3,
        ],
        ids=lambda x: str(getattr(x, "layout", x)),
    )
    def test_others_are_answered_with_none_and_nothing_is_written(self, run, x):
        to = torch.zeros(1, 2, 4)
        assert run(x, to) is None
        assert not to.any()

    def test_a_stride_that_is_not_free(self, run):
        assert run(torch.randn(1, 8), torch.zeros(1, 2, 8)[..., ::2]) is None

    def test_another_number_of_arguments(self, run):
        with pytest.raises(TypeError, match="expected 2 arguments, got 1"):
            run(torch.randn(1, 8))


class TestNotOffered:
    """Chains that native code does not run."""

    def test_a_weight_of_another_family(self):
        _, plain = packed_of(torch.randn(64, 32))
        _, rounded = packed_of(torch.randn(64, 32), "int8")
        assert NativeLinear("").chain(product_chain(rounded)) is None
        assert NativeQuantised("").chain(product_chain(plain)) is None

    @pytest.mark.parametrize("name", ["panels", "int8"])
    def test_a_weight_that_lies_elsewhere(self, name):
        _, weight = packed_of(torch.randn(64, 32), name)
        other = Packed(weight.spec, tuple(tensor.to("meta") for tensor in weight.tensors))
        assert kernel_of(name).chain(product_chain(other)) is None

    def test_more_stages_than_there_is_room_for(self):
        _, weight = packed_of(torch.randn(64, 32))
        chain = product_chain(weight)
        other = Chain("cpu", chain.inputs, chain.output, 0, chain.stages * 17)
        assert NativeLinear("").chain(other) is None


def words(*numbers):
    return array("q", numbers).tobytes()


ROW = words(0, 1, 4, 0, 0, 0, 1, 0, 0, 0)
HERE = words(0, 0, 0, 1, -1, 0, 0, 1)


@pytest.mark.parametrize(
    ("tensors", "memory", "stages", "error"),
    [
        (ROW, 0, ((4, 1, HERE, 4),), "one to 16 inputs"),
        (ROW * 18, 0, ((4, 1, HERE, 4),), "one to 16 inputs"),
        (words(11, *[0] * 9) * 2, 0, ((4, 1, HERE, 4),), "known dtypes"),
        (words(0, 5, *[0] * 8) * 2, 0, ((4, 1, HERE, 4),), "up to 4 dimensions"),
        (ROW * 2, 3, ((4, 1, HERE, 4),), "whole lines"),
        (ROW * 2, 0, (), "1 to 16 stages"),
        (ROW * 2, 0, ((5, 1, HERE, 4),), "tuple of a known kind"),
        (ROW * 2, 0, ((4, 1, HERE),), "tuple of a known kind"),
        (ROW * 2, 0, ((4, 0, HERE, 4),), "rows of at least 1"),
        (ROW * 2, 0, ((4, 1, HERE[:32], 4),), "places within"),
        (ROW * 2, 0, ((4, 1, words(1, 0, 0, 1) + HERE[32:], 4),), "places within"),
        (ROW * 2, 0, ((4, 1, words(-2, 0, 0, 1) + HERE[32:], 4),), "places within"),
        (ROW * 2, 0, ((4, 1, words(0, -8, 0, 1) + HERE[32:], 4),), "places within"),
        (ROW * 2, 0, ((4, 1, HERE[:32] + words(0, 0, -2, 1), 4),), "places within"),
        (ROW * 2, 0, ((1, "nothing", HERE, (1, 1, 0)),), "linear_kernels"),
        (ROW * 2, 0, ((0, "nothing", HERE, (0,) * 9),), "quantised_kernels"),
    ],
)
def test_what_is_malformed_is_named(tensors, memory, stages, error):
    with pytest.raises((TypeError, ValueError), match=error):
        _native.chain_fast_path(tensors, memory, stages, ())


def test_weights_live_as_long_as_what_reads_them():
    torch.manual_seed(0)
    module, weight = packed_of(torch.randn(256, 512))
    x = torch.randn(1, 512)
    expected = linear(x, module)
    run = NativeLinear("").chain(product_chain(weight))
    del module, weight
    torch.randn(256 * 512)
    assert torch.equal(run(x), expected)


def test_a_chain_is_not_had_without_what_torch_exports(monkeypatch):
    monkeypatch.setattr("torchyard_cpu._chains.reads_tensors", lambda: False)
    _, weight = packed_of(torch.randn(64, 32))
    assert native_chain(product_chain(weight), "", lambda weight: None) is None
