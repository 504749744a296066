"""Out lies in memory as query does, eager, compiled, exported and differentiated."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention as stock

from torchyard import use
from torchyard_attention import create_block_mask, flex_attention, varlen_attention

B, H, S, D = 2, 4, 6, 8


def laid_out(order, width=D, seed=0):
    """Return [B, H, S, width] whose dimensions lie in memory in an order."""
    shape = (B, H, S, width)
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn([shape[dim] for dim in order], generator=generator)
    return dense.permute([order.index(dim) for dim in range(4)])


ORDERS = [(*first, 3) for first in itertools.permutations(range(3))]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_out_has_querys_strides_as_torchs_has(order):
    query, key, value = (laid_out(order, seed=seed) for seed in range(3))
    expected = flex_attention(*(tensor.contiguous() for tensor in (query, key, value)))
    for _ in range(3):  # by the slow path, then by the fast one
        out = flex_attention(query, key, value)
        assert out.stride() == query.stride() == stock(query, key, value).stride()
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("implementation", ["attention.tiled", "attention.reference"])
def test_whoever_computes_forwards_and_backwards(implementation):
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, S, S, "cpu")
    given = [laid_out((0, 2, 1, 3), seed=seed).requires_grad_() for seed in range(3)]
    with use(attention=implementation, attention_backward=implementation):
        out = flex_attention(*given, lambda s, b, h, q, k: s * 2, mask)
        found = torch.autograd.grad(out.square().sum(), given)
    assert out.stride() == given[0].stride()
    plain = [tensor.detach().contiguous().requires_grad_() for tensor in given]
    expected = flex_attention(*plain, lambda s, b, h, q, k: s * 2, mask)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)
    gradients = torch.autograd.grad(expected.square().sum(), plain)
    for mine, theirs in zip(found, gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_another_head_size_keeps_the_order():
    query, key = (laid_out((0, 2, 1, 3), seed=seed) for seed in range(2))
    out = flex_attention(query, key, laid_out((0, 2, 1, 3), width=5, seed=2))
    assert out.transpose(1, 2).is_contiguous()
    assert out.shape == (B, H, S, 5)


def test_dimensions_of_size_one_decide_nothing():
    query = torch.randn(B, 1, H, D).transpose(1, 2)
    assert flex_attention(query, query, query).is_contiguous()


def test_an_expanded_query_gives_memory_of_its_own():
    query = torch.randn(B, 1, S, D).expand(B, H, S, D)
    out = flex_attention(query, query, query)
    out.zero_()
    assert 0 not in out.stride()


@pytest.mark.parametrize("grad", [False, True])
def test_compiled_code_knows(grad):
    given = [laid_out((0, 2, 1, 3), seed=seed).requires_grad_(grad) for seed in range(3)]
    expected = flex_attention(*given)
    compiled = torch.compile(
        lambda *x: flex_attention(*x).transpose(1, 2).flatten(2), fullgraph=True
    )
    out = compiled(*given)
    torch.testing.assert_close(out, expected.transpose(1, 2).flatten(2), rtol=1e-5, atol=1e-6)
    if grad:
        slope = torch.randn_like(out)
        mine = torch.autograd.grad(out, given, slope)
        theirs = torch.autograd.grad(expected.transpose(1, 2).flatten(2), given, slope)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_dynamic_lengths_are_exported_with_their_order():
    class Attend(torch.nn.Module):
        def forward(self, x):
            query = x.unflatten(-1, (H, D)).transpose(1, 2)
            return flex_attention(query, query, query).transpose(1, 2).flatten(2)

    dims = ({0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", max=512)},)
    program = torch.export.export(
        Attend(), (torch.randn(B, S, H * D),), dynamic_shapes=dims
    ).module()
    x = torch.randn(3, 40, H * D)
    assert torch.equal(program(x), Attend()(x))


def test_packed_sequences_come_back_contiguous():
    x = torch.randn(9, 2, 4)
    assert varlen_attention(x, x, x, torch.tensor([0, 4, 9])).is_contiguous()
