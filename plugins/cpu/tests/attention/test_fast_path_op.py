"""The op, as graphs call it, is computed by native code alone once such a call is cached."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard_attention import create_block_mask, flex_attention, masks
from torchyard_attention._api import checked_call
from torchyard_attention._ops import _attention as _ops
from torchyard_attention._ops._arguments import flattened

_OP = torch.ops.torchyard_attention.forward.default


def _other_way(*arguments: Any) -> Any:
    raise AssertionError("the op went the other way")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_repeated_call_of_the_op_has_the_bits_of_the_other_way(
    data: st.DataObject,
) -> None:
    draw = data.draw
    sizes = st.integers(1, 40)
    batch, heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows, keys, head_dim, value_dim = draw(sizes), draw(sizes), draw(sizes), draw(sizes)
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    swapped, lse = draw(st.booleans()), draw(st.booleans())

    def tensor(heads: int, length: int, size: int) -> Tensor:
        if swapped:
            return torch.randn(batch, length, heads, size).to(dtype).transpose(1, 2)
        return torch.randn(batch, heads, length, size).to(dtype)

    made = draw(st.sampled_from([None, masks.causal, masks.sliding_window(5)]))
    mask = made and create_block_mask(made, None, None, rows, keys, device="cpu")
    slopes = torch.rand(heads * group)
    score = draw(st.sampled_from([None, lambda s, b, h, q, k: s + slopes[h] * (q - k)]))
    call = checked_call(
        tensor(heads * group, rows, head_dim),
        tensor(heads, keys, head_dim),
        tensor(heads, keys, value_dim),
        score,
        mask,
        draw(st.sampled_from([None, 0.5, 2])),
        True,
    )
    arguments = (*flattened(call), lse, False, False, "")
    _OP(*arguments)  # cached here at the latest
    expected = _ops._isolated_forward(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ops, "_isolated_forward", _other_way)
        found = _OP(*arguments)
    for ours, other in zip(found, expected, strict=True):
        assert torch.equal(ours, other)
        assert (ours.dtype, ours.stride()) == (other.dtype, other.stride())
    assert found[1].shape == ((batch, heads * group, rows) if lse else (0,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_do_not_change(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = (torch.randn(1, 2, 9, 8, dtype=dtype, requires_grad=True) for _ in "qkv")

    def gradients() -> tuple[Tensor, ...]:
        common = flattened(checked_call(query, key, value))
        out, lse, _ = _OP(*common, True, False, False, "")
        return torch.autograd.grad(out.sin().sum() + lse.sum(), (query, key, value))

    gradients()
    found = gradients()
    monkeypatch.setattr(_ops, "try_op", lambda given: None)
    for ours, other in zip(found, gradients(), strict=True):
        assert torch.equal(ours, other)


@pytest.mark.parametrize("masked", [False, True])
def test_compiled_code_goes_there(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    query = torch.randn(1, 2, 24, 8)
    mask = create_block_mask(masks.causal, None, None, 24, 24, device="cpu") if masked else None

    @torch.compile(backend="aot_eager", fullgraph=True)
    def attend(query: Tensor) -> Tensor:
        found: Tensor = flex_attention(query, query, query, lambda s, *_: s * 0.625, mask)
        return found

    with torch.no_grad():
        expected = attend(query)
        monkeypatch.setattr(_ops, "_isolated_forward", _other_way)
        assert torch.equal(attend(query), expected)
