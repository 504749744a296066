"""Nodes of graphs compute what ``flex_attention`` does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_attention import ProgramError, create_block_mask, flex_attention
from torchyard_attention.contract import BACKWARD, FORWARD
from torchyard_attention.graph_call import graph_call, graph_mask


def _drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _with(arguments: Any, tensors: dict[int, Tensor]) -> Any:
    if isinstance(arguments, Tensor):
        return tensors[id(arguments)]
    if isinstance(arguments, (list, tuple)):
        return type(arguments)(_with(item, tensors) for item in arguments)
    return arguments


_REAL = [_drawn(2, 3, 20, 8), _drawn(2, 3, 150, 8, seed=2), _drawn(2, 3, 150, 4, seed=3)]
_BIAS = _drawn(150, seed=4)
_SHOWN = _drawn(2, 20, 150, seed=5) > 0


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_node_computes_what_flex_attention_does(masked: bool, biased: bool, grad: bool) -> None:
    real = [tensor.clone().requires_grad_(grad) for tensor in (*_REAL, _BIAS)]
    metas = [tensor.detach().to("meta") for tensor in real]
    shown = _SHOWN.to("meta")
    tensors = {id(meta): tensor for meta, tensor in zip(metas, real, strict=True)}
    tensors[id(shown)] = _SHOWN
    mask = None
    if masked:
        mask = graph_mask(lambda b, h, q_idx, kv_idx: shown[b, q_idx, kv_idx])
        made = mask.op(*_with(mask.arguments(shown, (2, 1, 20, 150)), tensors))
        tensors |= dict(zip(map(id, mask.blocks.tensors), made, strict=True))
    words: dict[str, Any] = {"scale": 0.4}
    call = graph_call(
        *metas[:3],
        (lambda s, b, h, q_idx, kv_idx: s + metas[3][kv_idx]) if biased else None,
        mask,
        grad=grad,
        **words,
    )
    found = call.op(*_with(call.arguments, tensors))[0]
    blocks = create_block_mask(lambda b, h, i, j: _SHOWN[b, i, j], 2, None, 20, 150, device="cpu")
    bias = real[3]
    expected = flex_attention(
        *real[:3],
        (lambda s, b, h, q_idx, kv_idx: s + bias[kv_idx]) if biased else None,
        blocks if masked else None,
        **words,
    )
    torch.testing.assert_close(found, expected)
    assert call.dtype == torch.float32
    assert set(call.requests) == ({FORWARD, BACKWARD} if grad else {FORWARD})
    assert {request.device for request in call.on("cpu").requests.values()} == {"cpu"}
    if grad:
        wanted = real if biased else real[:3]
        ours = torch.autograd.grad(found.square().sum(), wanted)
        theirs = torch.autograd.grad(expected.square().sum(), wanted)
        torch.testing.assert_close(ours, theirs)


def test_the_causal_mask_is_recognised() -> None:
    assert graph_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx).blocks.causal
    assert not graph_mask(lambda b, h, q_idx, kv_idx: q_idx > kv_idx).blocks.causal


def test_what_cannot_be_a_node_is_refused() -> None:
    query, key, value = (tensor.to("meta") for tensor in _REAL)
    with pytest.raises(ProgramError, match="score_mod"):
        graph_call(query, key, value, lambda s, b, h, i, j: s if s > 0 else -s)
    with pytest.raises(ValueError, match="key"):
        graph_call(query, key[..., :7], value)


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (20, 300), (300, 20), (256, 256)])
def test_graphs_get_the_causal_mask_that_create_block_mask_makes(rows: int, keys: int) -> None:
    mask = graph_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)
    made = mask.op(*mask.arguments(torch.empty(0), (1, 1, rows, keys)))
    # Another program of the same mask, whose structure is not known.
    other = graph_mask(lambda b, h, q_idx, kv_idx: kv_idx - q_idx < 1)
    assert not other.blocks.causal
    plain = other.op(*other.arguments(torch.empty(0), (1, 1, rows, keys)))
    for place, (found, expected) in enumerate(zip(made, plain, strict=True)):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        if place in (1, 3):
            # Beyond a row's count entries may be anything.
            listed = torch.arange(found.shape[-1]) < made[place - 1][..., None]
            found, expected = found[listed], expected[listed]
        torch.testing.assert_close(found, expected)
    # A graph may write into what it was given.
    for tensor in made:
        tensor.fill_(7)
    again = mask.op(*mask.arguments(torch.empty(0), (1, 1, rows, keys)))
    torch.testing.assert_close(again[0], plain[0])
    torch.testing.assert_close(again[4], plain[4])
