"""A repeated call is computed by native code alone, or not at all."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from torchyard import registry
from torchyard.dispatch import decision_cache
from torchyard_attention import BlockMask, create_block_mask, flex_attention, masks
from torchyard_attention._block_mask._operand import path_mask
from torchyard_attention.contract import (
    FORWARD,
    AttentionCall,
    AttentionRequest,
    MaskKind,
    ScoreKind,
)
from torchyard_attention.fast_path import PathMask
from torchyard_cpu import _tensor_reader
from torchyard_cpu.attention._forward import NativeAttentionPath, NativeForward

_FORWARD = NativeForward("")


def _path(*requests: AttentionRequest) -> NativeAttentionPath:
    path = _FORWARD.fast_path(None)
    assert path is not None
    for request in requests:
        path.enable(request)
    return path


def _request(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: PathMask | None = None,
    lse: bool = False,
) -> AttentionRequest:
    kind = MaskKind.NONE
    if mask is not None:
        kind = MaskKind.CAUSAL if mask.causal else MaskKind.BLOCKS
    return AttentionRequest(
        device="cpu",
        dtype=str(query.dtype)[6:],
        batch=query.shape[0],
        q_heads=query.shape[1],
        kv_heads=key.shape[1],
        q_length=query.shape[2],
        kv_length=key.shape[2],
        head_dim=query.shape[3],
        value_dim=value.shape[3],
        mask=kind,
        block_size=(0, 0) if mask is None else mask.blocks.block_size,
        lse=lse,
    )


def _tensors(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(2, 4, length, 16).to(dtype) for length in (3, 5, 5))  # type: ignore[return-value]


def _try(path: NativeAttentionPath, *tensors: Tensor, **changes: Any) -> Any:
    names = ("mask", "scale", "enable_gqa", "lse", "score")
    given = dict(zip(names, (None, None, False, False, None), strict=True)) | changes
    return path.try_call(*tensors, *given.values())


def _mask_of(mask: BlockMask) -> PathMask:
    found = path_mask(mask)
    assert found is not None
    return found


@settings(max_examples=150)
@given(data=st.data())
def test_a_direct_call_has_the_bits_of_the_forward(data: st.DataObject) -> None:
    draw = data.draw
    sizes = st.integers(1, 40)
    batch, heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows, keys = draw(sizes), draw(sizes)
    head_dim, value_dim = draw(sizes), draw(sizes)
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    swapped = draw(st.booleans())

    def tensor(heads: int, length: int, size: int) -> Tensor:
        if swapped:
            return torch.randn(batch, length, heads, size).to(dtype).transpose(1, 2)
        return torch.randn(batch, heads, length, size).to(dtype)

    query = tensor(heads * group, rows, head_dim)
    key, value = tensor(heads, keys, head_dim), tensor(heads, keys, value_dim)
    made = draw(st.sampled_from([None, masks.causal, masks.sliding_window(5)]))
    mask = made and _mask_of(create_block_mask(made, None, None, rows, keys, device="cpu"))
    scale = draw(st.sampled_from([None, 0.5, 2]))
    lse = draw(st.booleans())
    path = _path(_request(query, key, value, mask, lse))
    found = _try(path, query, key, value, mask=mask, scale=scale, enable_gqa=True, lse=lse)
    expected = _FORWARD(
        AttentionCall(
            query,
            key,
            value,
            None,
            mask and mask.blocks,
            head_dim**-0.5 if scale is None else float(scale),
            lse,
            False,
        )
    )
    out, found_lse = found if lse else (found, None)
    assert torch.equal(out, expected.out)
    assert out.is_contiguous()
    assert out.dtype == dtype
    assert not out.requires_grad
    if lse:
        assert torch.equal(found_lse, expected.lse)
        assert found_lse.is_contiguous()
        assert found_lse.dtype == torch.float32


class _Subclass(Tensor):
    pass


def _fake(tensor: Tensor) -> Tensor:
    return FakeTensorMode().from_tensor(tensor)


# Each changes the query, and nothing else, to one that the path must refuse.
_OTHER_KINDS: dict[str, Callable[[Tensor], Any]] = {
    "a subclass": lambda t: t.as_subclass(_Subclass),
    "a fake tensor": _fake,
    "differentiated": lambda t: t.requires_grad_(),
    "negated": torch._neg_view,
    "zeros that are not stored": lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype),
    "nested": lambda t: torch.nested.nested_tensor(list(t)),
    "sparse": lambda t: t.to_sparse(),
    "of the meta device": lambda t: t.to("meta"),
    "no tensor": lambda t: t.tolist(),
    "strided": lambda t: torch.cat([t, t], dim=3)[..., ::2],
    "flat": lambda t: t.flatten(0, 1),
    "empty": lambda t: t[:, :, :0],
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("place", range(3), ids=["query", "key", "value"])
@pytest.mark.parametrize("kind", _OTHER_KINDS)
def test_tensors_of_another_kind_are_refused(
    kind: str, place: int, capfd: pytest.CaptureFixture[str]
) -> None:
    tensors = _tensors()
    path = _path(_request(*tensors))
    assert _try(path, *tensors) is not None
    changed = list(tensors)
    changed[place] = _OTHER_KINDS[kind](tensors[place].clone())
    assert _try(path, *changed) is None
    assert capfd.readouterr().err == ""


def test_a_wrong_head_size_batch_or_dtype_is_refused() -> None:
    query, key, value = _tensors()
    path = _path(_request(query, key, value))
    assert _try(path, query, key[..., :8].contiguous(), value) is None
    assert _try(path, query, key[:1], value[:1]) is None
    assert _try(path, query, key[:, :, :4], value) is None
    assert _try(path, query, key, value[:1]) is None
    assert _try(path, query, key, value[:, :1]) is None
    assert _try(path, query, key.bfloat16(), value) is None
    assert _try(path, query, key, value.bfloat16()) is None
    doubles = [tensor.double() for tensor in (query, key, value)]
    assert _try(path, *doubles) is None


def test_grouped_heads_are_computed_where_they_are_allowed_and_fit() -> None:
    query = torch.randn(1, 4, 3, 16)
    key = torch.randn(1, 2, 3, 16)
    odd = torch.randn(1, 3, 3, 16)
    path = _path(_request(query, key, key), _request(query, odd, odd))
    assert _try(path, query, key, key, enable_gqa=True) is not None
    assert _try(path, query, key, key) is None
    assert _try(path, query, odd, odd, enable_gqa=True) is None


def test_gradients_matter_only_while_they_are_recorded() -> None:
    query, key, value = _tensors()
    parameter = torch.nn.Parameter(query)
    path = _path(_request(query, key, value))
    assert _try(path, parameter, key, value) is None
    with torch.no_grad():
        assert torch.equal(_try(path, parameter, key, value), _try(path, query, key, value))
    with torch.inference_mode():
        assert _try(path, parameter, key, value).is_inference()


@pytest.mark.parametrize("scale", ["0.5", torch.tensor(0.5)], ids=["text", "tensor"])
def test_a_scale_that_is_no_number_is_refused(scale: Any) -> None:
    tensors = _tensors()
    path = _path(_request(*tensors))
    assert _try(path, *tensors, scale=0.5) is not None
    assert _try(path, *tensors, scale=scale) is None


def test_a_mask_of_other_lengths_batches_or_heads_is_refused() -> None:
    query, key, value = _tensors()
    mask = _mask_of(create_block_mask(masks.causal, None, None, 3, 5, device="cpu"))
    path = _path(_request(query, key, value, mask))
    assert _try(path, query, key, value, mask=mask) is not None
    for lengths in ((4, 5), (3, 6)):
        assert _try(path, query, key, value, mask=mask._replace(lengths=lengths)) is None
    for batch, heads in ((3, None), (None, 2)):
        other = _mask_of(create_block_mask(masks.causal, batch, heads, 3, 5, device="cpu"))
        assert _try(path, query, key, value, mask=other) is None
    blocks = mask.blocks
    for name in ("kv_num_blocks", "kv_indices", "bits", "first_partial"):
        moved = replace(blocks, **{name: getattr(blocks, name).to("meta")})
        assert _try(path, query, key, value, mask=mask._replace(blocks=moved)) is None
    with pytest.raises(TypeError, match="mask"):
        _try(path, query, key, value, mask=blocks)


# Each makes another request of the enabled one.
_OTHERS: dict[str, dict[str, Any]] = {
    "dtype": {"dtype": "bfloat16"},
    "batch": {"batch": 1},
    "heads": {"q_heads": 8},
    "key heads": {"kv_heads": 2},
    "queries": {"q_length": 4},
    "keys": {"kv_length": 6},
    "head size": {"head_dim": 8},
    "value size": {"value_dim": 8},
    "mask": {"mask": MaskKind.CAUSAL},
    "block size": {"mask": MaskKind.BLOCKS, "block_size": (128, 64)},
    "lse": {"lse": True},
    "score": {"score": ScoreKind.POINTWISE},
    "greatest scores": {"max_scores": True},
    "gradients": {"grad": True},
    "strides": {"unit_stride": False},
    "determinism": {"deterministic": True},
    "pages": {"page_size": 16},
    "no kernel": {"dtype": "float64"},
}


@pytest.mark.parametrize("field", _OTHERS)
def test_only_an_enabled_request_is_computed(field: str) -> None:
    tensors = _tensors()
    request = _request(*tensors)
    path = _path(replace(request, **_OTHERS[field]))
    assert _try(path, *tensors) is None
    path.enable(request)
    assert _try(path, *tensors) is not None


@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_is_told_from_none_and_causal_from_others(causal: bool) -> None:
    tensors = _tensors()
    mask = _mask_of(create_block_mask(masks.causal, None, None, 3, 5, device="cpu"))
    mask = mask._replace(causal=causal)
    path = _path(_request(*tensors), _request(*tensors, mask._replace(causal=not causal)))
    assert _try(path, *tensors, mask=mask) is None
    path.enable(_request(*tensors, mask))
    assert _try(path, *tensors, mask=mask) is not None
    assert _try(path, *tensors) is not None


@given(length=st.integers(1, 5000), other=st.integers(1, 5000))
def test_sizes_are_rounded_as_the_contract_does(length: int, other: int) -> None:
    def request(keys: int) -> AttentionRequest:
        key = torch.empty(1, 1, keys, 1)
        return _request(torch.empty(1, 1, 1, 1), key, key)

    path = _path(request(length))
    key = torch.zeros(1, 1, other, 1)
    computed = _try(path, torch.zeros(1, 1, 1, 1), key, key) is not None
    assert computed == (request(length) == request(other))


def test_more_requests_than_there_is_room_for_push_out_others_and_nothing_else() -> None:
    requests = []
    for heads in range(1, 1500):
        tensors = (torch.randn(1, heads, 1, 1),) * 3
        requests.append((_request(*tensors), tensors))
    path = _path(*(request for request, _ in requests))
    results = [_try(path, *tensors) for _, tensors in requests]
    assert 200 < sum(found is not None for found in results) < 1400
    for (_, (tensor, *_)), found in zip(requests, results, strict=True):
        assert found is None or torch.equal(found, tensor)
    path.enable(requests[7][0])
    assert _try(path, *requests[7][1]) is not None


def test_where_torch_lacks_the_exchange_api_there_is_none_and_calls_go_through_the_dispatcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torchyard_cpu.attention._forward.reads_tensors", lambda: False)
    assert _FORWARD.fast_path(None) is None
    decision_cache().clear()
    query = torch.randn(1, 2, 3, 4)
    first, second = (flex_attention(query, query, query) for _ in range(2))
    assert torch.equal(first, second)
    decision_cache().clear()


def test_a_torch_without_the_exchange_api_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _tensor_reader.reads_tensors()
    monkeypatch.setattr(_tensor_reader, "Tensor", object)
    assert not _tensor_reader.reads_tensors.__wrapped__()


@pytest.mark.parametrize("lse", [False, True])
def test_outputs_have_one_owner_and_their_memory_is_given_back(lse: bool) -> None:
    tensors = _tensors()
    path = _path(_request(*tensors, lse=lse))
    for output in _try(path, *tensors, lse=lse) if lse else [_try(path, *tensors)]:
        usual = torch.empty(1)
        assert output._use_count() == usual._use_count()
        assert sys.getrefcount(output) == sys.getrefcount(usual) + 1  # the loop's list
        watched = weakref.ref(output)
        del output
    gc.collect()
    assert watched() is None


def test_the_second_call_takes_the_fast_path_and_a_demand_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = torch.randn(1, 2, 3, 24)
    expected = flex_attention(query, query, query)
    monkeypatch.setattr(NativeForward, "__call__", _must_not_be_called)
    assert torch.equal(flex_attention(query, query, query), expected)
    assert registry().resolve(FORWARD, _request(query, query, query))
    with pytest.raises(AssertionError, match="the forward was called"):
        flex_attention(query, query, query, implementation="cpu.native")
    with pytest.raises(AssertionError, match="the forward was called"):
        flex_attention(query, query, query, kernel_options={"cpu.rows_per_item": 64})


def _must_not_be_called(self: NativeForward, call: AttentionCall) -> None:
    raise AssertionError("the forward was called")
