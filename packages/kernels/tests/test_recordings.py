"""What linear and foreach_map keep of functions is never another than a recording made now."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard_kernels import foreach_map, linear
from torchyard_kernels.linear._functions import recordings as of_linear
from torchyard_kernels.pointwise import _recordings as of_map
from torchyard_programs import ProgramError

Function = Callable[..., Tensor]
Computed = Callable[[Function, Tensor], Tensor]
Value = bool | int | float | Tensor | None

_FACTOR = 2.0


def _of_linear(function: Function, x: Tensor) -> Tensor:
    return linear(x[None], torch.eye(len(x), dtype=x.dtype), epilogue=function)[0]


def _of_map(function: Function, x: Tensor) -> Tensor:
    found: Tensor = foreach_map(function, [x])[0]
    return found


both = pytest.mark.parametrize("computed", [_of_linear, _of_map])


def _counting() -> Function:
    count = 0

    def counted(y: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return y * count

    return counted


@both
def test_a_functions_effects_are_had_in_every_call(computed: Computed) -> None:
    counted, x = _counting(), torch.ones(4)
    assert [computed(counted, x)[0].item() for _ in range(4)] == [1, 2, 3, 4]


@both
@pytest.mark.parametrize(
    "function",
    [
        lambda y: y * torch.get_num_threads(),
        lambda y: y * (2 if torch.is_grad_enabled() else 3),
        lambda y: y * torch.get_default_dtype().itemsize,
        lambda y: y * globals()["_FACTOR"],
        lambda y: y * len(vars()) * _FACTOR,
        lambda y: y * (2 if torch.is_inference_mode_enabled() else 3),
    ],
    ids=["threads", "gradients", "dtype", "globals", "vars", "inference"],
)
def test_state_that_no_name_holds_is_read_in_every_call(
    computed: Computed, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, threads, dtype = torch.ones(4), torch.get_num_threads(), torch.get_default_dtype()

    def hold() -> None:
        for _ in range(3):
            assert torch.equal(computed(function, x), function(x))

    try:
        hold()
        torch.set_num_threads(threads + 1)
        torch.set_default_dtype(torch.float64)
        monkeypatch.setitem(globals(), "_FACTOR", 3.0)
        with torch.inference_mode():
            hold()
        with torch.no_grad():
            hold()
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
    hold()


class _Scale:
    by = 2.0


@both
def test_what_an_object_holds_is_read_in_every_call(computed: Computed) -> None:
    scale, x = _Scale(), torch.ones(4)
    for value in (2.0, 2.0, 5.0, 5.0, 7.0):
        scale.by = value
        assert computed(lambda y: y * scale.by, x)[0] == value


@both
def test_a_function_that_writes_to_a_tensor_is_refused_in_every_call(computed: Computed) -> None:
    def function(y: Tensor) -> Tensor:
        own = total
        own += y
        return y + own

    total, x = torch.zeros(4), torch.ones(4)
    with torch.no_grad():
        for _ in range(3):
            with pytest.raises(ProgramError, match="add_ works in place"):
                computed(function, x)
    assert not total.any()


_VALUES = st.one_of(
    st.integers(-3, 3),
    st.booleans(),
    st.sampled_from([-0.0, 0.0, 0.5, 1.0, 2.0]),
    st.none(),
    st.integers(0, 3).map(lambda number: torch.full((4,), number / 2)),
    st.integers(0, 3).map(lambda number: torch.tensor(number)),
)


@both
@settings(max_examples=50)
@given(changes=st.lists(st.tuples(st.integers(0, 2), _VALUES), min_size=1, max_size=10))
def test_every_change_of_what_is_named_is_noticed(
    computed: Computed, changes: list[tuple[int, Value]]
) -> None:
    first: Value = 1
    second: Value = 2.0

    def helper(y: Tensor) -> Tensor:
        return y if second is None else torch.where(y > 0, y * second, y)

    def function(y: Tensor, third: Value = 3) -> Tensor:
        own = y if third is None else y + third
        return helper(own) if first is None else helper(own) + first

    x = computed(lambda y: y, torch.tensor([-2.0, -0.0, 0.25, 3.0]))
    for place, value in changes:
        if place == 0:
            first = value
        elif place == 1:
            second = value
        else:
            function.__defaults__ = (value,)
        for _ in range(1 + place):
            found, expected = computed(function, x), function(x)
            assert torch.equal(found, expected)
            assert torch.equal(found.signbit(), expected.signbit())


def test_programs_are_kept_for_each_role_dtype_and_number_of_arguments() -> None:
    x = torch.ones(4)

    def curve(y: Tensor) -> Tensor:
        return torch.tanh(y)

    def function(y: Tensor, z: Tensor | int = 1) -> Tensor:
        return y * z

    def pair(y: Tensor, z: Tensor) -> Tensor:
        return (y * z).to(y.dtype)

    of_linear.recorded(curve, "epilogue", False, x)
    assert of_linear.EPILOGUES.cached_recording(curve, x.dtype) is not None
    assert of_linear.PROLOGUES.cached_recording(curve, x.dtype) is None
    assert of_linear.EPILOGUES.cached_recording(curve, torch.bfloat16) is None
    # Of torch's own functions too, which other tests may have recorded in any role.
    of_linear.recorded(torch.tanh, "epilogue", False, x)
    assert of_linear.EPILOGUES.cached_recording(torch.tanh, x.dtype) is not None
    texts = set()
    for dtype in (torch.float32, torch.bfloat16):
        of_linear.recorded(pair, "epilogue", True, x.to(dtype))
        found = of_linear.GATED_EPILOGUES.cached_recording(pair, dtype)
        assert found is not None
        text, captured = found
        assert '"gate"' in text
        assert captured == ()
        texts.add(text)
    assert len(texts) == 2
    for _ in range(3):
        one = of_map.recorded(function, "foreach_map", ([x],))
        two = of_map.recorded(function, "foreach_map", ([x], [x]))
    assert '"x1"' not in one[0]
    assert '"x1"' in two[0]
