"""A recording is taken for another's only where both functions do the same."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from packages.programs.tests.recordings import Mod, held
from torchyard_programs import Recordings, trace

_CPU = torch.device("cpu")
_INPUTS = (("s", torch.float32), ("h", torch.int64), ("q", torch.int64), ("k", torch.int64))
_FACTOR = 2.0
_TABLE = torch.randn(4)


def _trace(function: Mod, device: torch.device = _CPU) -> tuple[str, list[Tensor]]:
    return trace(function, "fn", _INPUTS, device)


def _recorded(function: Mod) -> tuple[str, list[Tensor]]:
    """Record, by what was kept or not, and hold the result against a recording made now."""
    return held(
        function,
        recordings.cached_recording,
        lambda mod: recordings.recorded(mod, _CPU),
        lambda mod: _trace(mod),
    )


recordings = Recordings(_trace)


def _keep(function: Mod) -> bool:
    for _ in range(3):
        _recorded(function)
    return recordings.cached_recording(function) is not None


def _scaled(factor: Any) -> Mod:
    return lambda s, h, q, k: s * factor


def _indexed(table: Tensor) -> Mod:
    def mod(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        rows = table.shape[0]
        return s + table[torch.clamp(k - q, -rows, rows - 1)].to(s.dtype) * table.numel()

    return mod


def _helped(helper: Mod) -> Mod:
    return lambda s, h, q, k: helper(s) + 1


def _named(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.nn.functional.softplus(s * _FACTOR) + _TABLE[h] * math.pi


def _branching(flag: Any) -> Mod:
    def mod(s: Tensor, h: Tensor, q: Tensor, k: Tensor, power: int = 2) -> Tensor:
        if flag is None:
            return s
        for _ in range(power):
            s = torch.where(q >= k, s, -math.inf) if flag else s * s
        return s

    return mod


def _with(thing: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(thing, name, value)
    return thing


def _alibi(slopes: Tensor) -> Mod:
    return lambda s, h, q, k: s + slopes[h] * (k - q)


def _chain(*mods: Mod) -> Mod:
    """Do one after another, of which each is a helper of the next."""
    first, second = mods
    return lambda s, h, q, k: second(first(s, h, q, k), h, q, k)


def _written(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    s += 1
    rows = 2
    rows *= 3
    return torch.div(s, rows, rounding_mode="floor")


_KEPT: dict[str, Mod] = {
    "alibi": _alibi(torch.rand(4)),
    "chain": _chain(_scaled(7.0), _alibi(torch.rand(4))),
    "twice": _chain(*(_alibi(_TABLE),) * 2),
    "shape": _indexed(torch.randn(7)),
    "globals": _named,
    "helper": _helped(torch.tanh),
    "own helper": _helped(lambda s: s * 2),
    "none": _branching(None),
    "flag": _branching(True),
    "parameter": _alibi(torch.nn.Parameter(torch.rand(4))),
    "tensor of inference": _alibi(torch.inference_mode()(torch.rand)(4)),
    "in place": _written,
    "text": lambda s, h, q, k: torch.nn.functional.gelu(s, approximate="tanh"),
    "an attribute that no code may read": _alibi(_with(torch.rand(4), of_mine=2.0)),
}


@pytest.mark.parametrize("name", _KEPT)
def test_what_does_the_same_again_is_cached(name: str) -> None:
    assert _keep(_KEPT[name])


class _Scaling:
    factor = 2.0

    def method(self, s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return s * self.factor

    __call__ = method


class _Subclass(Tensor):
    pass


def _counting() -> Mod:
    count = 0

    def mod(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return s * min(count, 1)

    return mod


def _catching(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    try:
        return s * _FACTOR
    except TypeError:
        return s


def _importing(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    from random import getstate

    return s * len(getstate())


def _biased(bias: Tensor) -> Mod:
    return lambda s, h, q, k: s + bias[h, q]


def _capturing(value: Any) -> Mod:
    return lambda s, h, q, k: s * value


def _told(s: Tensor, approximate: Any) -> Tensor:
    return s * (approximate == approximate)


def _told_names(s: Tensor, **names: Any) -> Tensor:
    for name in names:
        s = s * (name == name)
    return s


_SCALING = _Scaling()
_ONE = torch.tensor(1.0)

_NOT_KEPT: dict[str, Mod] = {
    "counter": _counting(),
    "list": lambda s, h, q, k, kept=[2.0]: s * kept[0],
    "dict": lambda s, h, q, k, kept={"x": 2.0}: s * kept.get("x"),
    "text": lambda s, h, q, k, mode="x": s * len(mode),
    "object": lambda s, h, q, k: s * _SCALING.factor,
    "method": _SCALING.method,
    "callable": _SCALING,
    "partial": functools.partial(lambda t, s, h, q, k: s * t, 2.0),
    "value": lambda s, h, q, k: s * float(_ONE),
    "item": lambda s, h, q, k: s * _ONE.item(),
    "branch on a value": lambda s, h, q, k: s * 2 if _ONE > 0 else s,
    "branch on a captured value": lambda s, h, q, k: s * _ONE if _ONE > 0 else s - _ONE,
    "made tensor": lambda s, h, q, k: s + (_TABLE * 2)[h],
    "len": lambda s, h, q, k: s + _TABLE[h] * len(_TABLE),
    "stride": lambda s, h, q, k: s + _TABLE[h] * _TABLE.stride(0),
    "gradient": lambda s, h, q, k: s + _TABLE[h] * _TABLE.requires_grad,
    "torch's state": lambda s, h, q, k: s * torch.get_num_threads(),
    "random": lambda s, h, q, k: s * min(random.random(), 0),
    "torch's random": lambda s, h, q, k: s * float(torch.zeros(()) * torch.rand(())),
    "globals()": lambda s, h, q, k: s * globals()["_FACTOR"],
    "inner": lambda s, h, q, k: (lambda x: x * 2)(s),
    "comprehension": lambda s, h, q, k: sum([s for _ in range(2)]),
    "catching": _catching,
    "import": _importing,
    "a text": lambda s, h, q, k: s * (2 if "%s" % (_ONE,) == "" else 3),  # noqa: UP031
    "a text in text": lambda s, h, q, k: s * (2 if f"{_ONE}" == "" else 3),
    "a name in text": lambda s, h, q, k: s * ("H" == "W"),
    "the text of a keyword": _helped(lambda s, approximate="H": s * (approximate == "H")),
    "texts in text": lambda s, h, q, k: _told(s, approximate="H"),
    "texts by name": lambda s, h, q, k: _told_names(s, approximate="H"),
    "getattr": lambda s, h, q, k: s * getattr(_SCALING, "factor"),  # noqa: B009
    "a dtype by default": lambda s, h, q, k: s * torch.get_default_dtype().itemsize,
    "recording of gradients": lambda s, h, q, k: s * torch.is_grad_enabled(),
    "device": lambda s, h, q, k: s * (2 if s.device == _CPU else 3),
    "keyword default": lambda s, h, q, k, *, t=2.0: s * t,
    "a function's attribute": _helped(_with(lambda s: s * 2, dim=2.0)),
    "a tensor's attribute": _indexed(_with(torch.rand(4), e=2.0)),
    "a subclass": _capturing(torch.tensor(2.0).as_subclass(_Subclass)),
}


@pytest.mark.parametrize("name", _NOT_KEPT)
def test_what_may_do_otherwise_is_recorded_at_every_call(name: str) -> None:
    function = _NOT_KEPT[name]
    for _ in range(4):
        text, captured = recordings.recorded(function, _CPU)
        expected, tensors = _trace(function)
        assert text == expected
        assert len(captured) == len(tensors)
    assert recordings.cached_recording(function) is None


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

    def mod(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
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
    ranging.__defaults__ = (3,)
    _recorded(ranging)
    ranging.__code__ = _branching(None).__code__.replace(co_name="other")
    _recorded(ranging)


def test_what_a_helper_names_is_noticed() -> None:
    factor = 2.0

    def helper(s: Tensor) -> Tensor:
        return s * factor

    outer = _chain(_scaled(3.0), lambda s, h, q, k: helper(s))
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
    assert _keep(_biased(torch.randn(3, 4)))
    assert recordings.cached_recording(_biased(torch.randn(5, 6))) is not None
    assert _keep(_indexed(torch.randn(2, 3)))
    assert recordings.cached_recording(_indexed(torch.randn(2, 4))) is None


def test_one_tensor_under_two_names_is_told_from_two() -> None:
    def mod(one: Tensor, other: Tensor) -> Mod:
        return lambda s, h, q, k: s + one[h] * other[h]

    tensors = [torch.randn(4) for _ in range(3)]
    for one, other in ((0, 1), (0, 0), (2, 1), (1, 2), (2, 2)):
        assert _keep(mod(tensors[one], tensors[other]))


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

    def helper(x: Tensor) -> Tensor:
        return x.to(second) if second == torch.float16 else x * second

    def mod(s: Tensor, h: Tensor, q: Tensor, k: Tensor, third: Any = 3) -> Tensor:
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
        expected, tensors = _trace(mod)
    except Exception as error:
        with pytest.raises(type(error)):
            recordings.recorded(mod, _CPU)
        assert recordings.cached_recording(mod) is None
        return
    for _ in range(times):
        text, captured = recordings.recorded(mod, _CPU)
        assert text == expected
        assert [id(tensor) for tensor in captured] == [id(tensor) for tensor in tensors]
