"""A repeated call with a score_mod has the forward's bits, or is not computed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from plugins.cpu.tests.score_mods import MODS
from torchyard.dispatch import decision_cache
from torchyard_attention import create_block_mask, flex_attention, masks, scores
from torchyard_attention._block_mask._operand import path_mask
from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention._mods._trace import SCORE_INPUTS, trace
from torchyard_attention.contract import AttentionCall
from torchyard_attention.fast_path import PathMask
from torchyard_attention.testing import request_of
from torchyard_cpu.attention._forward import NativeAttentionPath, NativeForward

_FORWARD = NativeForward("")
Mod = Callable[..., Tensor]


def _traced(mod: Mod, texts: dict[str, str] | None = None) -> TracedMod:
    text, captured = trace(mod, "score_mod", SCORE_INPUTS, torch.float32, torch.device("cpu"))
    if texts is not None:
        text = texts.setdefault(text, text)
    return TracedMod(text, tuple(captured))


def _call(
    query: Tensor, key: Tensor, mod: TracedMod, mask: PathMask | None = None, lse: bool = False
) -> AttentionCall:
    return AttentionCall(query, key, key, mod, mask and mask.blocks, 0.25, lse, False)


def _enable(path: NativeAttentionPath, call: AttentionCall, causal: bool = False) -> None:
    path.enable(request_of(call, causal=causal), call)


def _path(*calls: AttentionCall) -> NativeAttentionPath:
    path = _FORWARD.fast_path(None)
    assert path is not None
    for call in calls:
        _enable(path, call)
    return path


def _try(
    path: NativeAttentionPath, call: AttentionCall, mask: PathMask | None = None
) -> Tensor | tuple[Tensor, Tensor] | None:
    assert call.score_mod is not None
    score = (call.score_mod.text, call.score_mod.captured)
    return path.try_call(call.query, call.key, call.value, mask, 0.25, True, call.lse, score)


def _tensors(rows: int, keys: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 4, rows, 16).to(dtype), torch.randn(2, 2, keys, 16).to(dtype)


@settings(max_examples=200)
@given(data=st.data())
def test_a_direct_call_has_the_bits_of_the_forward(data: st.DataObject) -> None:
    draw = data.draw
    mod = MODS[draw(st.sampled_from(sorted(MODS)))]
    rows, keys = draw(st.integers(1, 75)), draw(st.integers(1, 140))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    made = draw(st.sampled_from([None, masks.causal, masks.sliding_window(5)]))
    lse = draw(st.booleans())
    query, key = _tensors(rows, keys, dtype)
    mask = None
    if made is not None:
        mask = path_mask(create_block_mask(made, None, None, rows, keys, device="cpu"))
        assert mask is not None
    call = _call(query, key, _traced(mod), mask, lse)
    path = _path()
    _enable(path, call, mask is not None and mask.causal)
    found = _try(path, call, mask)
    if found is None:
        assert _has_no_place(call)
        return
    expected = _FORWARD(call)
    out, found_lse = found if lse else (found, None)
    assert torch.equal(out, expected.out)
    assert lse == (found_lse is not None)
    if lse:
        assert torch.equal(found_lse, expected.lse)


def _has_no_place(call: AttentionCall) -> bool:
    """Return whether the program is larger than those that the path supports."""
    from torchyard_cpu.attention._score_program import captured_shapes, encoded_score

    assert call.score_mod is not None
    shapes = captured_shapes(call.score_mod)
    sizes = (*call.query.shape[:3], call.key.shape[2])
    return len(shapes) > 6 or sum(encoded_score(call.score_mod.text, shapes, sizes).counts) > 64


@settings(max_examples=100)
@given(data=st.data())
def test_a_call_of_other_sizes_has_the_bits_of_the_forward_where_the_path_supports_it(
    data: st.DataObject,
) -> None:
    draw = data.draw
    mod = MODS[draw(st.sampled_from(sorted(MODS)))]
    sizes = st.tuples(st.integers(1, 2), st.integers(1, 75), st.integers(1, 140))
    batch, rows, keys = draw(sizes)
    texts: dict[str, str] = {}
    query, key = _tensors(rows, keys)
    path = _path(_call(query[:batch], key[:batch], _traced(mod, texts)))
    others = draw(st.lists(st.tuples(*([st.integers(-20, 20)] * 2)), min_size=1, max_size=4))
    for row_change, key_change in others:
        changed = min(75, max(1, rows + row_change)), min(140, max(1, keys + key_change))
        call = _call(*_tensors(*changed), _traced(mod, texts))
        found = _try(path, call)
        assert found is None or torch.equal(found, _FORWARD(call).out)


@pytest.mark.parametrize(
    ("name", "mod"),
    [
        ("alibi", MODS["alibi"]),
        ("softcap", scores.softcap(5.0)),
        ("ring", lambda s, b, h, q, k: s - MODS["alibi"](0, b, h, 0, 0) * ((q - k) % 300)),
        ("a table with room", scores.learnable_bias(torch.randn(1, 300))),
    ],
)
def test_a_growing_cache_is_enabled_once(name: str, mod: Mod) -> None:
    texts: dict[str, str] = {}
    query, key = _tensors(1, 300)
    path = _path(_call(query, key[:, :, :260], _traced(mod, texts)))
    for keys in range(260, 300):
        call = _call(query, key[:, :, :keys], _traced(mod, texts))
        found = _try(path, call)
        assert found is not None, keys
        assert torch.equal(found, _FORWARD(call).out)


def _slopes() -> Mod:
    slopes = torch.rand(4)
    return lambda s, b, h, q, k: s + slopes[h] * (k - q)


class _Subclass(Tensor):
    pass


_OTHER_FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "another dtype": lambda t: t.bfloat16(),
    "another size": lambda t: torch.cat([t, t]),
    "another stride": lambda t: torch.stack([t, t], dim=1)[:, 0],
    "negated": torch._neg_view,
    "zeros that are not stored": lambda t: torch._efficientzerotensor(t.shape),
    "a gradient": lambda t: t.requires_grad_(),
    "a subclass": lambda t: t.as_subclass(_Subclass),
    "the meta device": lambda t: t.to("meta"),
}


@pytest.mark.parametrize("form", _OTHER_FORMS)
def test_captured_tensors_of_another_form_are_refused(form: str) -> None:
    texts: dict[str, str] = {}
    query, key = _tensors(3, 5)
    path = _path(_call(query, key, _traced(_slopes(), texts)))
    for _ in range(2):
        call = _call(query, key, _traced(_slopes(), texts))
        assert torch.equal(_try(path, call), _FORWARD(call).out)
    known = _traced(_slopes(), texts)
    other = tuple([_OTHER_FORMS[form](tensor) for tensor in known.captured])
    assert other
    assert _try(path, _call(query, key, TracedMod(known.text, other))) is None


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (3, 4, 5)], ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_integers_are_looked_at_in_every_call(shape: tuple[int, ...], step: int) -> None:
    numbers = torch.arange(torch.Size(shape).numel() * step).view(*shape, step)[..., 0]

    def mod(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return s + (numbers[(q,) * len(shape)] if shape else numbers)

    call = _call(*_tensors(3, 5), _traced(mod))
    path = _path(call)
    assert torch.equal(_try(path, call), _FORWARD(call).out)
    last = tuple(size - 1 for size in shape)
    for number in (2**31, -(2**31) - 1):
        numbers[last] = number
        assert _try(path, call) is None
    _enable(path, call)
    assert torch.equal(_try(path, call), _FORWARD(call).out)
    for number in (2**31 - 1, -(2**31)):
        numbers[last] = number
        assert torch.equal(_try(path, call), _FORWARD(call).out)


def test_a_captured_tensor_without_elements_is_the_forwards_error() -> None:
    table = torch.randn(2, 0)
    call = _call(*_tensors(3, 5), _traced(lambda s, b, h, q, k: s + table[b, q]))
    for compute in (_FORWARD, lambda call: _path(call)):
        with pytest.raises(IndexError, match="dimension 1 with size 0"):
            compute(call)


def test_another_text_or_request_is_refused() -> None:
    texts: dict[str, str] = {}
    query, key = _tensors(3, 5)
    call = _call(query, key, _traced(_slopes(), texts))
    path = _path(call)
    assert _try(path, call) is not None
    assert _try(path, _call(query, key, _traced(_slopes()))) is None  # not the same object
    assert _try(path, _call(query, key, _traced(scores.softcap(3.0), texts))) is None
    assert _try(path, _call(query, key, call.score_mod, lse=True)) is None  # type: ignore[arg-type]
    assert _try(path, _call(*_tensors(4, 5), call.score_mod)) is None  # type: ignore[arg-type]
    assert path.try_call(query, key, key, None, 0.25, True, False, None) is None
    with pytest.raises(TypeError, match="score"):
        path.try_call(query, key, key, None, 0.25, True, False, ("text",))  # type: ignore[arg-type]


def test_an_index_out_of_range_is_the_forwards_error() -> None:
    table = torch.randn(3)
    call = _call(*_tensors(1, 9), _traced(lambda s, b, h, q, k: s + table[k]))
    path = _path(call)
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 3") as expected:
        _FORWARD(call)
    with pytest.raises(IndexError) as found:
        _try(path, call)
    assert str(found.value).rpartition("index")[0] == str(expected.value).rpartition("index")[0]


def test_a_large_program_is_refused() -> None:
    def long(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        for number in range(70):
            s = torch.tanh(s * (number + 2))
        return s

    call = _call(*_tensors(1, 9), _traced(long))
    assert _try(_path(call), call) is None
    tables = [torch.randn(4) for _ in range(7)]
    call = _call(*_tensors(1, 9), _traced(lambda s, b, h, q, k: s + sum(t[h] for t in tables)))
    assert _try(_path(call), call) is None


def test_more_programs_than_there_is_room_for_push_out_others_and_nothing_else() -> None:
    query, key = _tensors(1, 9)
    calls = [_call(query, key, _traced(scores.softcap(1.0 + number))) for number in range(600)]
    path = _path(*calls)
    found = [_try(path, call) for call in calls]
    assert 100 < sum(out is not None for out in found) < 500
    for call, out in zip(calls, found, strict=True):
        assert out is None or torch.equal(out, _FORWARD(call).out)
    _enable(path, calls[7])
    assert _try(path, calls[7]) is not None


def test_nothing_is_kept_alive_but_the_program() -> None:
    call = _call(*_tensors(1, 9), _traced(_slopes()))
    path = _path(call)
    out = _try(path, call)
    assert call.score_mod is not None
    watched = [weakref.ref(t) for t in (out, call.query, *call.score_mod.captured)]
    del out, call
    gc.collect()
    assert [ref() for ref in watched] == [None] * 3
    del path


@pytest.mark.parametrize("rows", [1, 20])
def test_a_later_call_takes_the_fast_path_and_a_demand_does_not(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision_cache().clear()
    query, key = _tensors(rows, 40)
    window = 64

    def attend(**more: Any) -> Tensor:
        slopes, newest = torch.linspace(0.1, 1, 4), torch.tensor(40)

        def mod(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return s - slopes[h] * ((newest - k) % window)

        out: Tensor = flex_attention(query, key, key, mod, enable_gqa=True, **more)
        return out

    first, _ = attend(), attend()

    def refuse(self: NativeForward, call: AttentionCall) -> None:
        raise AssertionError("the forward was called")

    monkeypatch.setattr(NativeForward, "__call__", refuse)
    assert torch.equal(attend(), first)
    window = 32
    with pytest.raises(AssertionError, match="the forward was called"):
        attend()
    window = 64
    assert torch.equal(attend(), first)
    for demand in ({"implementation": "cpu.native"}, {"kernel_options": {"cpu.rows_per_item": 64}}):
        with pytest.raises(AssertionError, match="the forward was called"):
            attend(**demand)


class _Disturbing(TorchFunctionMode):
    """Keeps a call from every cache, and from the fast path before the op."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


_TABLES = [
    torch.rand(4),
    torch.rand(4) - 0.5,
    torch.rand(4).bfloat16(),
    torch.rand(9)[::2],
    torch.arange(4),
    torch.arange(4) * 2**31,
    torch.nn.Parameter(torch.rand(4)),
]


def test_any_sequence_of_calls_gives_what_it_gives_when_recorded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = NativeForward.__call__
    calls = []
    monkeypatch.setattr(
        NativeForward, "__call__", lambda self, call: calls.append(call) or usual(self, call)
    )
    factor: Any = 1
    window: Any = 16
    table = _TABLES[0]

    def helper(k: Tensor) -> Tensor:
        return (40 - k) % window

    def mod(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return s * factor + table[h].float() * helper(k)

    computed = 0

    @settings(max_examples=80, deadline=None)
    @given(
        changes=st.lists(
            st.tuples(
                st.sampled_from([1, 1.0, True, 2.0, torch.tensor(2.0), torch.tensor(2)]),
                st.sampled_from([16, 17]),
                st.integers(0, len(_TABLES) - 1),
                st.sampled_from([1, 3, 40]),
                st.sampled_from([33, 60, 64, 65]),
                st.sampled_from([torch.float32, torch.bfloat16]),
                st.booleans(),
                st.integers(1, 4),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def check(changes: list[tuple[Any, ...]]) -> None:
        nonlocal factor, window, table, computed
        for factor, window, place, rows, keys, dtype, grad, times in changes:  # noqa: B007
            table = _TABLES[place]
            query, key = _tensors(rows, keys, dtype)
            with torch.set_grad_enabled(grad):
                for _ in range(times):
                    if table.is_floating_point():
                        table.data.mul_(-1.0)
                    before = len(calls)
                    found = flex_attention(query, key, key, mod, enable_gqa=True)
                    computed += len(calls) == before
                    with _Disturbing(), pytest.MonkeyPatch.context() as patch:
                        patch.setattr(
                            "torchyard_attention._ops._attention.try_op", lambda given: None
                        )
                        expected = flex_attention(query, key, key, mod, enable_gqa=True)
                    assert len(calls) > before
                    assert torch.equal(found, expected)
                    assert found.requires_grad == expected.requires_grad

    check()
    assert computed > 20
