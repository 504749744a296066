"""Functions before and after a product in Metal, with the tensors that they capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.linear.calls import LAYOUTS, excess, normal, with_functions
from torchyard_conformance._kernels._cases._linear import GRIDS, LinearCase
from torchyard_conformance._kernels._ruler import compare
from torchyard_kernels.linear.contract import LINEAR, LinearCall
from torchyard_mps.linear import multiply

# Of as many rows, products and outputs as ``with_functions`` has; a gated result has 19 columns.
_ROW, _INNER = torch.rand(3, 1), normal(45, seed=5)
_COLUMN, _HALF = normal(38, seed=3), normal(19, seed=3)
_TILE, _X_TILE = normal(38, 3, seed=4).t(), normal(3, 90, seed=6)[:, ::2]
_ONE, _SCALAR = torch.full((1,), 0.5), torch.tensor(0.25)
_FLAGS, _COUNTS = _TILE > 0, torch.arange(38, dtype=torch.int32) % 5

_FUNCTIONS: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "gelu": ("epilogue", torch.nn.functional.gelu),
    "float32": ("epilogue", lambda y: y.float() * 2 - 1),
    "column": ("epilogue", lambda y: torch.relu(y * _COLUMN)),
    "row": ("epilogue", lambda y: y * _ROW.half()),
    "float32-row": ("epilogue", lambda y: y * _ROW),
    "tile": ("epilogue", lambda y: (y + _TILE) * _SCALAR),
    "one": ("epilogue", lambda y: y * _ONE.half() - _COLUMN),
    "flags": ("epilogue", lambda y: torch.where(_FLAGS, y, _SCALAR)),
    "integers": ("epilogue", lambda y: y + _COUNTS * (_COUNTS + 1)),
    "comparison": ("epilogue", lambda y: y * 0 > _COLUMN),
    "swiglu": ("gated", lambda gate, up: torch.nn.functional.silu(gate) * up),
    "gated-column": ("gated", lambda gate, up: gate * _ROW.half() + up * _HALF),
    # Of 0 they are not 0, and what is beyond the depth is no product.
    "shifted": ("prologue", lambda x: torch.cos(x) + 1.0),
    "shifted-column": ("prologue", lambda x: torch.cos(x) + _INNER),
    "norm": ("prologue", lambda x: x * _ROW * _SCALAR),
    "inner-tile": ("prologue", lambda x: x * _X_TILE),
}


def _call(*names: str, call: LinearCall | None = None) -> LinearCall:
    functions: dict[str, Any] = {}
    for name in names:
        role, function = _FUNCTIONS[name]
        functions["epilogue" if role == "gated" else role] = function
        if role == "gated":
            functions["gated"] = True
    return with_functions(**functions) if call is None else with_functions(**functions, call=call)


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_each_function(name: str) -> None:
    assert excess(_call(name)) <= 1


def test_both_functions_capture_tensors() -> None:
    assert excess(_call("shifted-column", "tile"), orders=3, address_sanitizer=True) <= 1


def test_functions_of_a_packed_weight() -> None:
    x, weight = normal(3, 45, seed=1), LAYOUTS["int4-groups"](normal(38, 45))
    assert excess(_call("inner-tile", "gated-column", call=LinearCall(x, weight))) <= 1


_CASES: Final[dict[str, LinearCase]] = {
    f"{law}-{name}": case
    for law in ("matches", "not-finite", "any-memory")
    for name, case in GRIDS[LINEAR][law].items()
    if isinstance(case, LinearCase) and case.function
}


@pytest.mark.parametrize("name", _CASES)
def test_each_function_of_the_kit(name: str) -> None:
    case = _CASES[name]
    with emulated():
        found = multiply(*case.given())
    assert max(compare(case, case.named_outputs(found)).values()) <= 1


_DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32)
_CAPTURED: Final = (*_DTYPES, torch.int32, torch.uint8, torch.bool)


@st.composite
def _calls(draw: st.DrawFn, most: int) -> LinearCall:
    dtype = draw(st.sampled_from(_DTYPES))
    rows, outputs, depth = (draw(st.integers(1, size)) for size in (most // 2, most, most))
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    batched, gated = draw(st.booleans()), draw(st.booleans())
    weight = normal(*(batch if batched else ()), outputs, depth, dtype=dtype)
    if gated:
        weight = torch.cat([weight, weight.flip(-2)], -2)
    x = normal(*batch, rows, depth, dtype=dtype, seed=1)

    def captured(of: torch.Size, seed: int) -> Tensor:
        own = [size if draw(st.booleans()) else 1 for size in of[draw(st.integers(0, len(of))) :]]
        found = normal(*own, dtype=torch.float32, seed=seed) * 2
        found = found.to(draw(st.sampled_from(_CAPTURED)))
        if found.ndim > 1 and draw(st.booleans()):
            return found.mT.contiguous().mT
        return torch.stack([found, found], -1)[..., 0] if draw(st.booleans()) else found

    inner = captured(x.shape, 2)
    outer = [captured(torch.Size((*batch, rows, outputs)), seed) for seed in (3, 4)]
    if gated:
        return with_functions(
            lambda x: x + inner,
            lambda gate, up: gate * outer[0] + up * outer[1],
            gated=True,
            call=LinearCall(x, weight),
        )
    return with_functions(
        lambda x: x + inner, lambda y: y * outer[0] + outer[1], call=LinearCall(x, weight)
    )


@settings(max_examples=3)
@given(call=_calls(20))
def test_captured_tensors_of_any_shape(call: LinearCall) -> None:
    assert excess(call) <= 1


@pytest.mark.sweep
@settings(max_examples=80)
@given(call=_calls(70))
def test_many_captured_tensors(call: LinearCall) -> None:
    assert excess(call) <= 1


def test_half_precision_loses_nothing_between_steps() -> None:
    x, weight = torch.full((2, 1), 2048.0).half(), torch.ones(3, 1).half()
    one, call = torch.ones(3).half(), LinearCall(x, weight)
    with emulated():
        found = multiply(with_functions(epilogue=lambda y: (y + one) - 2048, call=call))
        # A conversion in the function rounds: 2049 is no float16.
        rounded = multiply(with_functions(epilogue=lambda y: (y + one).half() - 2048, call=call))
    assert torch.equal(found, torch.ones(2, 3).half())
    assert not rounded.any()


def test_as_many_tensors_as_there_are_buffers_for() -> None:
    columns = [normal(38, seed=seed) / 8 for seed in range(24)]

    def added(y: Any) -> Any:
        for column in columns:
            y = y + column
        return y

    assert excess(with_functions(epilogue=added)) <= 1
    columns.append(_COLUMN)
    with pytest.raises(ValueError, match="multiply: functions: expected at most 24 captured"):
        excess(with_functions(epilogue=added))
