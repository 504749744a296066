"""A recording is taken for another's only where both functions do the same."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard_attention import _recordings as recordings
from torchyard_attention import flex_attention, scores
from torchyard_attention._trace import SCORE_INPUTS, trace

Mod = Callable[..., Any]

_CPU = torch.device("cpu")
_FACTOR: Any = 2.0
_TABLE = torch.randn(4)


def _recorded(function: Mod) -> tuple[str, list[Tensor]]:
    """Record, by what was kept or not, and hold the result against a recording made now."""
    ready = recordings.kept(function)
    text, captured = recordings.recorded(function, torch.float32, _CPU)
    expected, tensors = trace(function, "score_mod", SCORE_INPUTS, torch.float32, _CPU)
    assert text == expected
    assert [id(tensor) for tensor in captured] == [id(tensor) for tensor in tensors]
    if ready is not None:
        assert ready[0] is text
        assert [id(tensor) for tensor in ready[1]] == [id(tensor) for tensor in tensors]
    return text, captured


def _keep(function: Mod) -> bool:
    for _ in range(3):
        _recorded(function)
    return recordings.kept(function) is not None


def _scaled(factor: Any) -> Mod:
    return lambda s, b, h, q, k: s * factor


def _indexed(table: Tensor) -> Mod:
    def mod(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        rows = table.shape[0]
        return s + table[torch.clamp(k - q, -rows, rows - 1)].to(s.dtype) * table.numel()

    return mod


def _helped(helper: Mod) -> Mod:
    return lambda s, b, h, q, k: helper(s) + 1


def _named(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.nn.functional.softplus(s * _FACTOR) + _TABLE[h] * math.pi


def _branching(flag: Any) -> Mod:
    def mod(s: Any, b: Any, h: Any, q: Any, k: Any, power: int = 2) -> Any:
        if flag is None:
            return s
        for _ in range(power):
            s = torch.where(q >= k, s, -math.inf) if flag else s * s
        return s

    return mod


_KEPT: dict[str, Mod] = {
    "alibi": scores.alibi(torch.rand(4)),
    "symmetric alibi": scores.alibi(torch.rand(4), symmetric=True),
    "softcap": scores.softcap(20.0),
    "relative": scores.relative_bias(torch.randn(4, 9)),
    "buckets": scores.relative_bias(torch.randn(4, 32), buckets=scores.t5_buckets()),
    "bias": scores.learnable_bias(torch.randn(3, 5)),
    "chain": scores.chain(scores.softcap(7.0), scores.alibi(torch.rand(4))),
    "twice": scores.chain(*(scores.alibi(_TABLE),) * 2),
    "shape": _indexed(torch.randn(7)),
    "globals": _named,
    "helper": _helped(torch.tanh),
    "own helper": _helped(lambda s: s * 2),
    "none": _branching(None),
    "flag": _branching(True),
    "parameter": scores.alibi(torch.nn.Parameter(torch.rand(4))),
}


@pytest.mark.parametrize("name", _KEPT)
def test_what_does_the_same_again_is_kept(name: str) -> None:
    assert _keep(_KEPT[name])


class _Scaling:
    factor = 2.0

    def method(self, s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s * self.factor

    __call__ = method


class _Subclass(Tensor):
    pass


def _counting() -> Mod:
    count = 0

    def mod(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        nonlocal count
        count += 1
        return s * min(count, 1)

    return mod


def _catching(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    try:
        return s * _FACTOR
    except TypeError:
        return s


def _importing(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    from random import getstate

    return s * len(getstate())


def _adding(table: Tensor) -> Mod:
    def mod(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        own = table
        own += 0
        return s + own[h]

    return mod


def _capturing(value: Any) -> Mod:
    return lambda s, b, h, q, k: s * value


def _with(thing: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(thing, name, value)
    return thing


_SCALING = _Scaling()
_ONE = torch.tensor(1.0)

_NOT_KEPT: dict[str, Mod] = {
    "counter": _counting(),
    "list": lambda s, b, h, q, k, kept=[2.0]: s * kept[0],
    "dict": lambda s, b, h, q, k, kept={"x": 2.0}: s * kept.get("x"),
    "text": lambda s, b, h, q, k, mode="x": s * len(mode),
    "object": lambda s, b, h, q, k: s * _SCALING.factor,
    "method": _SCALING.method,
    "callable": _SCALING,
    "partial": functools.partial(lambda t, s, b, h, q, k: s * t, 2.0),
    "value": lambda s, b, h, q, k: s * float(_ONE),
    "item": lambda s, b, h, q, k: s * _ONE.item(),
    "branch on a value": lambda s, b, h, q, k: s * 2 if _ONE > 0 else s,
    "branch on a captured value": lambda s, b, h, q, k: s * _ONE if _ONE > 0 else s - _ONE,
    "made tensor": lambda s, b, h, q, k: s + (_TABLE * 2)[h],
    "len": lambda s, b, h, q, k: s + _TABLE[h] * len(_TABLE),
    "stride": lambda s, b, h, q, k: s + _TABLE[h] * _TABLE.stride(0),
    "gradient": lambda s, b, h, q, k: s + _TABLE[h] * _TABLE.requires_grad,
    "torch's state": lambda s, b, h, q, k: s * torch.get_num_threads(),
    "random": lambda s, b, h, q, k: s * min(random.random(), 0),
    "torch's random": lambda s, b, h, q, k: s * float(torch.zeros(()) * torch.rand(())),
    "globals()": lambda s, b, h, q, k: s * globals()["_FACTOR"],
    "inner": lambda s, b, h, q, k: (lambda x: x * 2)(s),
    "comprehension": lambda s, b, h, q, k: sum([s for _ in range(2)]),
    "catching": _catching,
    "import": _importing,
    "in place": _adding(torch.randn(4)),
    "keyword default": lambda s, b, h, q, k, *, t=2.0: s * t,
    "a function's attribute": _helped(_with(lambda s: s * 2, dim=2.0)),
    "a tensor's attribute": scores.alibi(_with(torch.rand(4), e=2.0)),
    "a subclass": _capturing(torch.tensor(2.0).as_subclass(_Subclass)),
}


@pytest.mark.parametrize("name", _NOT_KEPT)
def test_what_may_do_otherwise_is_recorded_at_every_call(name: str) -> None:
    function = _NOT_KEPT[name]
    for _ in range(4):
        text, captured = recordings.recorded(function, torch.float32, _CPU)
        expected, tensors = trace(function, "score_mod", SCORE_INPUTS, torch.float32, _CPU)
        assert text == expected
        assert len(captured) == len(tensors)
    assert recordings.kept(function) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (2.0, 3.0),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (0, 0.0),
        (2.0, torch.tensor(2.0)),
        (torch.tensor(2.0), torch.tensor(2)),
        (math.inf, -math.inf),
    ],
    ids=str,
)
def test_a_number_of_another_value_or_type_is_another_function(first: Any, second: Any) -> None:
    assert _keep(_scaled(first))
    assert _keep(_scaled(second))
    assert _keep(_scaled(first))


def test_a_closure_that_changes_is_noticed() -> None:
    factor: Any = 2.0

    def mod(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s * factor

    for value in (2.0, 3.0, torch.tensor(2.0), torch.tensor(5.0), 2, 2.0):
        factor = value
        assert _keep(mod)


def test_a_global_a_default_and_code_that_change_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _keep(_named)
    text, _ = _recorded(_named)
    for name, value in (("_FACTOR", 3.0), ("_TABLE", torch.randn(5)), ("_FACTOR", _ONE)):
        monkeypatch.setitem(globals(), name, value)
        _recorded(_named)
    assert _recorded(_named)[0] != text
    # A name that hides one of Python's.
    ranging = _branching(True)
    assert _keep(ranging)
    monkeypatch.setitem(globals(), "range", lambda count: [0])
    _recorded(ranging)
    monkeypatch.delitem(globals(), "range")
    ranging.__defaults__ = (3,)  # type: ignore[attr-defined]
    _recorded(ranging)
    ranging.__code__ = _branching(None).__code__.replace(co_name="other")  # type: ignore[attr-defined]
    _recorded(ranging)


def test_what_a_helper_names_is_noticed() -> None:
    factor = 2.0

    def helper(s: Any) -> Any:
        return s * factor

    outer = scores.chain(_helped(helper), _scaled(3.0))
    for value in (2.0, 4.0, 2.0):
        factor = value
        assert _keep(outer)


def test_tensors_of_another_shape_or_dtype_are_noticed() -> None:
    for table in (
        torch.randn(7),
        torch.randn(9),
        torch.randn(7).double(),
        torch.randn(7).bfloat16(),
        torch.randint(0, 9, (7,)),
    ):
        assert _keep(_indexed(table))


def test_a_shape_that_nobody_asks_for_may_be_another() -> None:
    assert _keep(scores.learnable_bias(torch.randn(3, 4)))
    assert recordings.kept(scores.learnable_bias(torch.randn(5, 6))) is not None
    assert _keep(_indexed(torch.randn(2, 3)))
    assert recordings.kept(_indexed(torch.randn(2, 4))) is None


def test_one_tensor_under_two_names_is_told_from_two() -> None:
    def mod(one: Tensor, other: Tensor) -> Mod:
        return lambda s, b, h, q, k: s + one[h] * other[h]

    tensors = [torch.randn(4) for _ in range(3)]
    for one, other in ((0, 1), (0, 0), (2, 1), (1, 2), (2, 2)):
        assert _keep(mod(tensors[one], tensors[other]))


def test_a_score_of_another_dtype_is_recorded_at_every_call() -> None:
    def mod(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s + (q - k).to(s.dtype)

    assert _keep(mod)
    for _ in range(3):
        text, _captured = recordings.recorded(mod, torch.float64, _CPU)
        assert "float64" in text


_VALUES = st.one_of(
    st.integers(-3, 3),
    st.booleans(),
    st.floats(-2, 2, width=16),
    st.none(),
    st.just(torch.float16),
    st.integers(0, 3).map(lambda number: torch.full((number + 1,), 0.5)),
)


@settings(max_examples=100, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 3), _VALUES), min_size=1, max_size=12))
def test_every_change_of_what_is_named_is_noticed(changes: list[tuple[int, Any]]) -> None:
    first: Any = 1
    second: Any = 2.0

    def helper(x: Any) -> Any:
        return x.to(second) if second == torch.float16 else x * second

    def mod(s: Any, b: Any, h: Any, q: Any, k: Any, third: Any = 3) -> Any:
        own = s if third is None else s - third
        return helper(own) if first == torch.float16 else helper(own) + first

    for place, value in changes:
        if place == 0:
            first = value
        elif place == 1:
            second = value
        else:
            mod.__defaults__ = (value,)
        _attempt(mod, 1 + place)


def _attempt(mod: Mod, times: int) -> None:
    """Record, or fail as a recording made now does."""
    try:
        expected, tensors = trace(mod, "score_mod", SCORE_INPUTS, torch.float32, _CPU)
    except Exception as error:
        with pytest.raises(type(error)):
            recordings.recorded(mod, torch.float32, _CPU)
        assert recordings.kept(mod) is None
        return
    for _ in range(times):
        text, captured = recordings.recorded(mod, torch.float32, _CPU)
        assert text == expected
        assert [id(tensor) for tensor in captured] == [id(tensor) for tensor in tensors]


def test_a_tensors_new_values_are_read() -> None:
    query = torch.randn(1, 4, 3, 8)
    slopes = torch.rand(4)
    mod = scores.alibi(slopes)
    for _ in range(5):
        found = flex_attention(query, query, query, mod)
        distance = torch.arange(3) - torch.arange(3)[:, None]
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, query, query, slopes[:, None, None] * distance
        )
        torch.testing.assert_close(found, expected)
        slopes.mul_(-1.5)


def test_many_functions_leave_a_bounded_number_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "_MOST", 8)
    for table in ("_known", "_names", "_texts"):
        monkeypatch.setattr(recordings, table, {})
    monkeypatch.setattr(recordings, "_met", set())
    for number in range(50):
        assert _keep(_scaled(float(number)))
        source = f"lambda s, b, h, q, k: s * {number}.5"
        assert _keep(eval(source))
    assert len(recordings._known) <= 8
    assert len(recordings._texts) <= 8
    assert len(recordings._names) <= 8
    assert len(recordings._met) <= 8


def test_the_text_of_what_was_kept_is_one_object() -> None:
    first, second = _scaled(11.0), eval("lambda s, b, h, q, k: s * 11.0")
    assert _keep(first)
    assert _keep(second)
    one, other = recordings.kept(first), recordings.kept(second)
    assert one is not None
    assert other is not None
    assert one[0] is other[0]
    assert recordings.is_kept(one[0])
    assert not recordings.is_kept("".join(list(one[0])))
