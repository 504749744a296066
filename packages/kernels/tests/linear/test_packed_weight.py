"""A packed weight keeps its numbers, says what it is, and goes through files unchanged."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from torchyard_kernels import PackedWeight, linear
from torchyard_kernels.linear.contract import WeightSpec

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@settings(max_examples=40)
@given(st.integers(0, 100), st.integers(0, 100), st.sampled_from(DTYPES), st.booleans())
def test_unpacking_gives_the_original_bits(rows, columns, dtype, transposed):
    weight = torch.randn(rows, columns).to(dtype)
    given_weight = weight.t().contiguous().t() if transposed else weight
    packed = PackedWeight(given_weight)
    assert torch.equal(packed.unpack(), weight)
    assert packed.shape == (rows, columns)
    assert packed.dtype == dtype
    assert packed.format == "panels"


def test_nan_and_infinity_are_preserved():
    weight = torch.tensor([[float("nan"), float("inf"), -0.0]], dtype=torch.float16)
    bits = PackedWeight(weight).unpack().view(torch.int16)
    assert torch.equal(bits, weight.view(torch.int16))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_panel_holds_its_words_one_after_another(dtype):
    weight = torch.arange(40 * 6).reshape(40, 6).to(dtype)
    pair = 2 if dtype == torch.bfloat16 else 1
    data = PackedWeight(weight).data
    assert data.shape == (2, 6 // pair, 32, pair)
    assert data[1, 2 // pair, 3, 2 % pair] == weight[35, 2]
    assert (data[1, :, 8:] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_file_gives_the_same_weight_without_packing(tmp_path, dtype):
    weight = torch.randn(70, 45).to(dtype)
    packed = PackedWeight(weight)
    save_file(packed.state_dict(), tmp_path / "weight.safetensors")
    state = load_file(tmp_path / "weight.safetensors")
    read = PackedWeight.from_state(state)
    assert torch.equal(read.data, packed.data)
    assert torch.equal(read.unpack(), weight)
    x = torch.randn(3, 45).to(dtype)
    assert torch.equal(linear(x, read), linear(x, packed))
    name = str(dtype)[6:]
    assert bytes(state["spec"].tolist()).decode() == f"panels {name} 70x45"
    assert WeightSpec.parse(f"panels {name} 70x45") == WeightSpec("panels", name, 70, 45)


def test_a_models_state_goes_through_a_packed_weight():
    model = torch.nn.ModuleDict({"up": PackedWeight(torch.randn(4, 5))})
    other = torch.nn.ModuleDict({"up": PackedWeight(torch.zeros(4, 5))})
    other.load_state_dict(model.state_dict())
    assert torch.equal(other["up"].unpack(), model["up"].unpack())
    smaller = torch.nn.ModuleDict({"up": PackedWeight(torch.zeros(4, 4))})
    with pytest.raises(ValueError, match=r"up.spec: expected 'panels float32 4x4', got .* 4x5'"):
        smaller.load_state_dict(model.state_dict())


def test_a_parameter_is_copied_and_stays_trainable():
    weight = torch.nn.Parameter(torch.randn(4, 5))
    packed = PackedWeight(weight)
    before = packed.unpack()
    with torch.no_grad():
        weight.zero_()
    assert torch.equal(packed.unpack(), before)
    assert not packed.data.requires_grad
    assert list(packed.parameters()) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("format", ["panels", "int8", "int4"])
def test_a_change_of_dtype_converts_what_is_packed(format, dtype):
    torch.manual_seed(0)
    module = torch.nn.Module()
    module.norm = torch.nn.LayerNorm(40)
    module.packed = PackedWeight(torch.randn(70, 40), format)
    expected = module.packed.unpack().to(dtype)
    module.to(dtype)
    assert module.packed.dtype == dtype
    assert torch.equal(module.packed.unpack(), expected)
    x = torch.randn(3, 40).to(dtype)
    found = linear(x, module.packed).double()
    exact = x.double() @ expected.double().T
    limit = 40 * torch.finfo(dtype).eps
    if format == "panels":
        torch.testing.assert_close(found, exact, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_numbers_that_were_rounded_are_rounded_to_themselves(dtype):
    torch.manual_seed(0)
    for format in ("int8", "int4"):
        once = PackedWeight(torch.randn(70, 256).to(dtype), format).unpack()
        twice = PackedWeight(once, format).unpack()
        # A scale of 8 bits is found again to its last one where the numbers are exact.
        limit = 2**-7 if dtype == torch.bfloat16 else 1e-3 if dtype == torch.float16 else 1e-6
        torch.testing.assert_close(twice, once, rtol=limit, atol=0)


class TestErrors:
    """What cannot be packed or read says why."""

    def test_weights(self):
        with pytest.raises(TypeError, match=r"weight: expected a dense tensor .* got a list"):
            PackedWeight([[1.0]])
        with pytest.raises(ValueError, match=r"weight: expected \[N, K\], got shape \[3\]"):
            PackedWeight(torch.ones(3))
        with pytest.raises(TypeError, match=r"expected one of .*, got torch.int32"):
            PackedWeight(torch.ones(2, 2, dtype=torch.int32))
        with pytest.raises(ValueError, match=r"format: expected one of .*'panels', got 'rows'"):
            PackedWeight(torch.ones(2, 2), "rows")
        with pytest.raises(ValueError, match=r"format: expected one of .*, got \['panels'\]"):
            PackedWeight(torch.ones(2, 2), ["panels"])
        with pytest.raises(
            TypeError, match=r"weight: expected a dense tensor .* layout torch.sparse_coo"
        ):
            PackedWeight(torch.ones(2, 2).to_sparse())
        with pytest.raises(TypeError, match="'panels' has no option 'group'"):
            PackedWeight(torch.ones(2, 2), group=2)

    def test_a_dtype_that_cannot_be_packed(self):
        packed = PackedWeight(torch.ones(2, 2))
        before = packed.data.clone()
        with pytest.raises(TypeError, match=r"expected one of .*, got torch.float64; convert unp"):
            packed.double()
        assert torch.equal(packed.data, before)

    def test_states(self):
        state = PackedWeight(torch.ones(2, 2)).state_dict()
        with pytest.raises(TypeError, match="state: expected tensors by name, got NoneType"):
            PackedWeight.from_state(None)
        with pytest.raises(ValueError, match="expected a tensor 'spec', got"):
            PackedWeight.from_state({f"up.{name}": tensor for name, tensor in state.items()})
        with pytest.raises(ValueError, match=r"expected the tensors \['data', 'spec'\]"):
            PackedWeight.from_state({**state, "scale": torch.ones(1)})
        with pytest.raises(ValueError, match=r"data: expected \[1, 2, 32, 1\] of torch.float32"):
            PackedWeight.from_state({**state, "data": torch.ones(3)})
        with pytest.raises(ValueError, match="spec: expected uint8 text"):
            PackedWeight.from_state({**state, "spec": torch.ones(3)})
        with pytest.raises(ValueError, match="spec: expected 'format dtype NxK"):
            PackedWeight.from_state({**state, "spec": torch.tensor([65], dtype=torch.uint8)})
