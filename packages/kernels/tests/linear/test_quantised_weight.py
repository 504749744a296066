"""Weights of 8 and 4 bits: how far rounding moves them, and what their state is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from torchyard_kernels import PackedWeight, linear, quantize
from torchyard_kernels.linear._formats.rounding import dequantise, quantise, round_rows

DTYPES = (torch.float16, torch.bfloat16, torch.float32)

FORMATS = st.one_of(
    st.tuples(st.just(8), st.sampled_from([0, 32, 64, 128]), st.just(True)),
    st.tuples(st.just(4), st.sampled_from([0, 32, 64, 128]), st.booleans()),
)
SHAPES = st.tuples(st.integers(1, 150), st.integers(1, 300))


def weights(shape, seed, dtype=torch.float32):
    """Weights whose rows differ in size and in mean, with a row of zeros."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = shape
    sizes = 10 ** (4 * torch.rand(rows, 1, generator=generator) - 2)
    weight = sizes * (torch.randn(rows, columns, generator=generator) + 1)
    weight[seed % rows] = 0
    return weight.to(dtype)


@settings(max_examples=60)
@given(SHAPES, FORMATS, st.integers(0, 1000))
def test_no_weight_moves_by_more_than_half_of_its_scale(shape, form, seed):
    bits, group, symmetric = form
    weight = weights(shape, seed, torch.float64)
    found = quantise(weight, bits, group, asymmetric=not symmetric)
    back = dequantise(found, bits, group, torch.float64)
    scale = found.scale.double().repeat_interleave(group or shape[1], 1)[:, : shape[1]]
    # float32 scales are rounded to nearest, and 127 times that rounding is what is lost at the end.
    assert ((back - weight).abs() <= scale * (0.5 + 128 * 2.0**-24)).all()
    assert (back[weight == 0] == 0).all()


@settings(max_examples=60)
@given(SHAPES, FORMATS, st.sampled_from(DTYPES), st.integers(0, 1000))
def test_unpacking_gives_what_rounding_left(shape, form, dtype, seed):
    bits, group, symmetric = form
    weight = weights(shape, seed, dtype)
    packed = quantize(weight, bits=bits, group_size=group, symmetric=symmetric)
    found = quantise(weight, bits, group, asymmetric=not symmetric)
    assert torch.equal(packed.unpack(), dequantise(found, bits, group, dtype))
    assert packed.unpack().dtype == packed.dtype == dtype
    assert packed.shape == shape


@settings(max_examples=30)
@given(SHAPES, st.integers(0, 1000))
def test_rounding_to_8_bits_twice_changes_nothing(shape, seed):
    once = quantize(weights(shape, seed), bits=8).unpack()
    twice = quantize(once, bits=8).unpack()
    assert torch.allclose(once, twice, rtol=2**-20, atol=0)


@pytest.mark.parametrize(("bits", "group", "bits_per_weight"), [(8, 0, 8.01), (4, 32, 4.6)])
def test_the_state_has_the_bits_that_it_should(bits, group, bits_per_weight):
    packed = quantize(torch.randn(4096, 4096), bits=bits, group_size=group)
    held = sum(tensor.nbytes for tensor in packed.state_dict().values())
    assert held * 8 / 4096**2 < bits_per_weight


@pytest.mark.parametrize("activation", [None, "int8"])
@pytest.mark.parametrize(("bits", "symmetric"), [(8, True), (4, True), (4, False)])
def test_a_file_gives_the_same_weight(tmp_path, bits, symmetric, activation):
    packed = quantize(torch.randn(70, 100), bits=bits, symmetric=symmetric, activation=activation)
    save_file(packed.state_dict(), tmp_path / "weight.safetensors")
    read = PackedWeight.from_state(load_file(tmp_path / "weight.safetensors"))
    assert read.spec_text == packed.spec_text
    assert torch.equal(read.unpack(), packed.unpack())
    x = torch.randn(3, 100)
    assert torch.equal(linear(x, read), linear(x, packed))


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(-30, 30), st.integers(0, 1000))
def test_a_row_is_rounded_to_steps_of_a_127th(columns, exponent, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, columns, generator=generator, dtype=torch.float64) * 2.0**exponent
    most = x.abs().amax(-1, keepdim=True)
    rounded = round_rows(x)
    assert ((rounded - x).abs() <= most / 254 * (1 + 2.0**-40)).all()
    assert torch.allclose(rounded.abs().amax(-1, keepdim=True), most)


def test_a_row_that_is_not_finite_becomes_nan_and_another_stays():
    x = torch.tensor([[1.0, float("inf")], [1.0, float("nan")], [0.0, 0.0], [1e-40, 0.0]])
    rounded = round_rows(x)
    assert rounded[:2].isnan().all()
    assert (rounded[2:] == 0).all()


def test_a_gradient_reaches_x_through_what_the_weight_stands_for():
    packed = quantize(torch.randn(6, 10), bits=4, group_size=32)
    x = torch.randn(3, 10, requires_grad=True)
    linear(x, packed).sum().backward()
    assert torch.allclose(x.grad, packed.unpack().sum(0).expand(3, 10), atol=1e-5)


def test_a_compiled_call_gives_the_eager_bits():
    packed = quantize(torch.randn(6, 40), bits=4, group_size=32, activation="int8")
    x = torch.randn(3, 40)

    def call(x):
        return linear(x, packed) * 2

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), call(x))


class TestErrors:
    """What cannot be rounded says why."""

    def test_arguments(self):
        weight = torch.ones(2, 2)
        with pytest.raises(ValueError, match="quantize: bits: expected 8 or 4, got 3"):
            quantize(weight, bits=3)
        with pytest.raises(ValueError, match="activation: expected 'int8' or None, got 'int4'"):
            quantize(weight, bits=8, activation="int4")
        with pytest.raises(ValueError, match="group_size: expected 0 or 32 or 64 or 128, got 48"):
            quantize(weight, bits=4, group_size=48)
        with pytest.raises(ValueError, match="quantize: symmetric: expected True with 8 bits"):
            quantize(weight, bits=8, symmetric=False)
        with pytest.raises(TypeError, match="'int4' has no option 'groups'; it has activation"):
            PackedWeight(weight, "int4", groups=32)
        with pytest.raises(TypeError, match=r"weight: expected float16.*, got torch.float64"):
            quantize(weight.double(), bits=8)

    @pytest.mark.parametrize("value", [float("inf"), float("nan")])
    def test_weights_that_are_not_finite(self, value):
        weight = torch.ones(3, 3)
        weight[1, 2] = value
        with pytest.raises(ValueError, match="expected finite numbers"):
            quantize(weight, bits=8)

    def test_states(self):
        state = quantize(torch.ones(2, 2), bits=4).state_dict()
        with pytest.raises(ValueError, match=r"scale: expected \[1, 1, 64\] of torch.bfloat16"):
            PackedWeight.from_state({**state, "scale": torch.ones(1, 1, 64)})
        with pytest.raises(ValueError, match=r"expected the tensors \['data', 'scale', 'spec'"):
            PackedWeight.from_state({name: state[name] for name in ("spec", "data", "scale")})
        text = torch.tensor(list(b"int4 float32 2x2 group=48"), dtype=torch.uint8)
        with pytest.raises(ValueError, match="group: expected 0 or 32"):
            PackedWeight.from_state({**state, "spec": text})
        text = torch.tensor(list(b"int4 float64 2x2 group=64"), dtype=torch.uint8)
        with pytest.raises(ValueError, match="'int4' has no dtype 'float64'"):
            PackedWeight.from_state({**state, "spec": text})
