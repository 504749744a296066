"""Under torch.autocast attention computes in autocast's dtype, as torch's own does."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention as stock

from torchyard import ContractId, registry, use
from torchyard_attention import explain, flex_attention, varlen_attention
from torchyard_attention.contract import BACKWARD, FORWARD

FORWARDS = registry().order(ContractId.parse(FORWARD), "cpu")
BACKWARDS = registry().order(ContractId.parse(BACKWARD), "cpu")
LOW = torch.bfloat16


def normal(*shape, seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()


def given(dtype=torch.float32):
    return tuple(normal(1, 2, 37, 16, seed=seed, dtype=dtype) for seed in range(3))


def computed(inputs, cast):
    """Return out, without and with gradients, and gradients of ``inputs``."""
    with torch.autocast("cpu", dtype=LOW, enabled=cast):
        used = inputs if cast else tuple(tensor.to(LOW) for tensor in inputs)
        out = flex_attention(*used)
        gradients = torch.autograd.grad(out, inputs, torch.ones_like(out))
        with torch.no_grad():
            return [flex_attention(*used), out, *gradients]


def test_torchs_operators_are_tested():
    assert {"attention.sdpa", "attention.tiled"} <= {*FORWARDS} & {*BACKWARDS}


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("backward", BACKWARDS)
def test_it_is_a_cast_of_the_inputs_whoever_computes(forward, backward):
    with use(attention=forward, attention_backward=backward):
        expected = computed(given(), cast=False)
        found = computed(given(), cast=True)
    assert [tensor.dtype for tensor in found] == [LOW, LOW, *[torch.float32] * 3]
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float32, torch.float32, LOW),
        (LOW, torch.float32, torch.float16),
        (torch.float16, LOW, LOW),
    ],
    ids=str,
)
def test_dtypes_may_differ_as_in_torch(dtypes):
    inputs = [
        normal(1, 2, 16, 8, seed=seed, dtype=dtype).detach() for seed, dtype in enumerate(dtypes)
    ]
    with pytest.raises(TypeError, match="expected query's dtype"):
        flex_attention(*inputs)
    with torch.autocast("cpu", dtype=LOW):
        found, theirs = flex_attention(*inputs), stock(*inputs)
    assert found.dtype == theirs.dtype == LOW
    assert torch.equal(found, flex_attention(*(tensor.to(LOW) for tensor in inputs)))


def test_float64_stays_float64():
    inputs = [tensor.detach().double() for tensor in given()]
    expected = flex_attention(*inputs)
    with torch.autocast("cpu", dtype=LOW):
        found = flex_attention(*inputs)
    assert found.dtype == torch.float64
    assert torch.equal(found, expected)


def test_packed_sequences_are_cast_alike():
    query, key, value = (tensor.detach()[0].transpose(0, 1) for tensor in given())
    starts = torch.tensor([0, 20, 37])
    with torch.autocast("cpu", dtype=LOW):
        found = varlen_attention(query, key, value.to(torch.float16), starts)
    cast = (tensor.to(LOW) for tensor in (query, key, value.to(torch.float16)))
    assert torch.equal(found, varlen_attention(*cast, starts))


def test_compiled_code_and_decisions_cast_alike():
    inputs = [tensor.detach() for tensor in given()]

    def attend(query, key, value):
        return flex_attention(query, key, value, lambda s, b, h, q, k: s * 2)

    with torch.autocast("cpu", dtype=LOW):
        expected = attend(*inputs)
        compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")(*inputs)
        assert explain(*inputs).request.dtype == "bfloat16"
    assert expected.dtype == LOW
    assert torch.equal(compiled, expected)
