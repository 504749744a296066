"""Attention keeps the dtypes it is given under torch.autocast, whoever computes it."""

from __future__ import annotations

import pytest
import torch

from torchyard import ContractId, registry, use
from torchyard_attention import flex_attention
from torchyard_attention.contract import BACKWARD, FORWARD

FORWARDS = registry().order(ContractId.parse(FORWARD), "cpu")
BACKWARDS = registry().order(ContractId.parse(BACKWARD), "cpu")


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def computed(forward, backward, cast):
    query, key, value = (normal(1, 2, 37, 16, seed=seed) for seed in range(3))
    with (
        use(attention=forward, attention_backward=backward),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast),
    ):
        out = flex_attention(query, key, value)
        gradients = torch.autograd.grad(out, (query, key, value), torch.ones_like(out))
        with torch.no_grad():
            return [flex_attention(query, key, value), out, *gradients]


def test_torchs_operators_are_tested():
    assert {"attention.sdpa", "attention.tiled"} <= {*FORWARDS} & {*BACKWARDS}


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("backward", BACKWARDS)
def test_values_and_gradients_are_as_without_autocast(forward, backward):
    expected = computed(forward, backward, cast=False)
    for mine, theirs in zip(computed(forward, backward, cast=True), expected, strict=True):
        assert mine.dtype == theirs.dtype == torch.float32
        assert torch.equal(mine, theirs)
