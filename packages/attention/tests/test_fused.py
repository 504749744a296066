"""What adapters of fused kernels share: pieces of causal calls, and the way around NaN."""

from __future__ import annotations

import math

import pytest
import torch

from torchyard_attention.fused import Piece, exact_backward, exact_forward, finite, pieces
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import GradientRuler, Ruler, report


def test_pieces() -> None:
    assert list(pieces(5, 9, False)) == [Piece((0, 5), 9, False)]
    assert list(pieces(5, 9, True)) == [Piece((0, 5), 5, True)]
    assert list(pieces(9, 5, True)) == [Piece((0, 5), 5, True), Piece((5, 9), 5, False)]


@pytest.mark.parametrize(("rows", "keys"), [(5, 5), (5, 9), (9, 5), (1, 4), (4, 1)])
def test_pieces_see_what_the_mask_shows(rows: int, keys: int) -> None:
    seen = torch.zeros((rows, keys), dtype=torch.int64)
    for piece in pieces(rows, keys, True):
        begin, end = piece.rows
        block = torch.ones((end - begin, piece.keys), dtype=torch.int64)
        if piece.causal:
            assert block.shape[0] == block.shape[1]
            block = block.tril()
        seen[begin:end, : piece.keys] += block
    assert torch.equal(seen, torch.ones((rows, keys), dtype=torch.int64).tril())


def test_finite() -> None:
    assert finite(torch.ones(3), torch.zeros(0))
    assert not finite(torch.ones(3), torch.tensor([1.0, math.nan]))


def test_the_second_way_computes_the_call_and_names_another() -> None:
    call = make_call(q_length=12, kv_heads=2, visible=torch.ones((12, 12), dtype=torch.bool).tril())
    with pytest.warns(RuntimeWarning, match=r"attention=some\.kernel,"):
        result = exact_forward(call, instead="some.kernel")
    errors = Ruler(call).compare(result)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    assert result.lse is not None
    grad = torch.randn_like(result.out)
    with pytest.warns(RuntimeWarning, match=r"attention_backward=some\.kernel "):
        found = exact_backward(call, result.out, result.lse, grad, None, instead="some.kernel")
    errors = GradientRuler(call, grad, None).compare(found)
    assert all(error.ratio <= 1 for error in errors), report(errors)
