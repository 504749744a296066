"""What each implementation of ``linear/1`` with functions is tested by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from packages.kernels.tests.linear.calls import LAYOUTS, excess, normal, with_functions
from torchyard_conformance._kernels._cases._linear import GRIDS, LinearCase
from torchyard_conformance._kernels._ruler import compare
from torchyard_kernels.linear.contract import LINEAR, LinearCall

__all__ = ["LinearSuite", "call_with"]

_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)
_CAPTURED: Final = st.sampled_from([*_FLOATS, torch.int32, torch.uint8, torch.bool])

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
    "gelu-column-row": (
        "epilogue",
        lambda y: torch.nn.functional.gelu(y) * _COLUMN + _ROW,
    ),
    "number": ("epilogue", lambda y: y * 2 - 1),
    "float32-and-row": ("epilogue", lambda y: y.float() * _ROW),
    "tile": ("epilogue", lambda y: (y + _TILE) * _SCALAR),
    "one": ("epilogue", lambda y: y * _ONE.half() - _COLUMN),
    "flags": ("epilogue", lambda y: torch.where(_FLAGS, y, _SCALAR)),
    "integers": ("epilogue", lambda y: y + _COUNTS * (_COUNTS + 1)),
    "comparison": ("epilogue", lambda y: y * 0 > _COLUMN),
    "swiglu": ("gated", lambda gate, up: torch.nn.functional.silu(gate) * up),
    "gated-half": ("gated", lambda gate, up: gate * up + _HALF),
    "gated-column": ("gated", lambda gate, up: gate * _ROW.half() + up * _HALF),
    # Of 0 they are not 0, and what is beyond the depth is no product.
    "reciprocal": ("prologue", lambda x: 1.0 / x),
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


_CASES: Final[dict[str, LinearCase]] = {
    f"{law}-{name}": case
    for law in ("matches", "not-finite", "any-memory")
    for name, case in GRIDS[LINEAR][law].items()
    if isinstance(case, LinearCase) and case.function
}


def call_with(*names: str, call: LinearCall | None = None) -> LinearCall:
    """Return a call with functions of the table."""
    functions: dict[str, Any] = {} if call is None else {"call": call}
    for name in names:
        role, function = _FUNCTIONS[name]
        functions["epilogue" if role == "gated" else role] = function
        functions["gated"] = functions.get("gated", False) or role == "gated"
    return with_functions(**functions)


class LinearSuite(ABC):
    """Tests of an implementation; a subclass says how it is called, and pytest collects that.

    Attributes:
        blocked: whether sums in float32 are as near to float64 as torch's, which are of blocks.
        roundings: of bfloat16, how many of a result there are.
        drawn: dtypes of random calls with functions.
        examples: how many random calls a test makes that is no sweep; half as many with functions.
    """

    blocked: ClassVar[bool] = True
    roundings: ClassVar[float] = 1.0
    drawn: ClassVar[tuple[torch.dtype, ...]] = _FLOATS
    examples: ClassVar[int] = 25

    @abstractmethod
    def compute(self, call: LinearCall) -> Tensor:
        """Compute a call."""

    def _is_near(self, call: LinearCall) -> None:
        assert self._excess(call, self.blocked) <= 1

    def _is_as_near_as_a_loop(self, call: LinearCall) -> None:
        assert self._excess(call, False) <= 1

    def _excess(self, call: LinearCall, blocked: bool) -> float:
        roundings = self.roundings if call.x.dtype == torch.bfloat16 else 1.0
        return excess(call, self.compute, blocked=blocked, roundings=roundings)

    @pytest.mark.parametrize("dtype", _FLOATS, ids=str)
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_each_form_of_a_weight(self, layout: str, dtype: torch.dtype) -> None:
        weight = LAYOUTS[layout](normal(67, 45, dtype=dtype))
        x, bias = normal(3, 45, dtype=dtype, seed=1), normal(67, dtype=dtype)
        self._is_near(LinearCall(x, weight, bias))

    def test_sizes(self) -> None:
        settings(max_examples=self.examples)(given(_sized(70))(self._is_near))()

    @pytest.mark.sweep
    def test_many_sizes(self) -> None:
        settings(max_examples=100)(given(_sized(140))(self._is_near))()

    def test_batches_have_weights_of_their_own(self) -> None:
        x, weight = normal(3, 5, 40, seed=1), normal(33, 3, 40).transpose(0, 1)
        self._is_near(LinearCall(x, weight))
        column = normal(33, seed=6)
        self._is_near(
            with_functions(epilogue=lambda y: torch.relu(y) + column, call=LinearCall(x, weight))
        )

    def test_rows_do_not_affect_one_another(self) -> None:
        call = LinearCall(normal(6, 45, seed=1), normal(37, 45))
        clean = self.compute(call)
        call.x[1, 44], call.x[4, 0] = torch.nan, torch.inf
        out = self.compute(call)
        assert out[1].isnan().all()
        assert not out[4].isfinite().any()
        rest = [0, 2, 3, 5]
        assert torch.equal(out[rest], clean[rest])

    @pytest.mark.parametrize("name", _FUNCTIONS)
    def test_each_function(self, name: str) -> None:
        self._is_near(call_with(name))

    def test_both_functions_capture_tensors(self) -> None:
        self._is_near(call_with("shifted-column", "tile"))

    def test_functions_of_a_packed_weight(self) -> None:
        call = LinearCall(normal(3, 45, seed=1), LAYOUTS["int4-groups"](normal(38, 45)))
        self._is_near(call_with("inner-tile", "gated-column", call=call))
        self._is_near(call_with("shifted", "swiglu", call=call))

    @pytest.mark.parametrize("name", _CASES)
    def test_each_function_of_the_kit(self, name: str) -> None:
        case = _CASES[name]
        found = self.compute(*case.given())
        assert max(compare(case, case.named_outputs(found)).values()) <= 1

    def test_captured_tensors_of_any_shape(self) -> None:
        drawn = _capturing(self.drawn, 20)
        settings(max_examples=self.examples // 2)(given(drawn)(self._is_as_near_as_a_loop))()

    @pytest.mark.sweep
    def test_many_captured_tensors(self) -> None:
        drawn = _capturing(self.drawn, 70)
        settings(max_examples=80)(given(drawn)(self._is_as_near_as_a_loop))()

    def test_half_precision_loses_nothing_between_steps(self) -> None:
        x, weight = torch.full((2, 1), 2048.0).half(), torch.ones(3, 1).half()
        one, call = torch.ones(3).half(), LinearCall(x, weight)
        found = self.compute(with_functions(epilogue=lambda y: (y + one) - 2048, call=call))
        assert torch.equal(found, torch.ones(2, 3).half())
        # A conversion in the function rounds: 2049 is no float16.
        rounded = with_functions(epilogue=lambda y: (y + one).half() - 2048, call=call)
        assert not self.compute(rounded).any()


@st.composite
def _sized(draw: st.DrawFn, most: int) -> LinearCall:
    rows, outputs, depth = (draw(st.integers(0, size)) for size in (most // 2, most, 2 * most))
    dtype = draw(st.sampled_from([torch.float16, torch.float32]))
    layouts = list(LAYOUTS) if outputs and depth else ["plain"]
    weight = LAYOUTS[draw(st.sampled_from(layouts))](normal(outputs, depth, dtype=dtype))
    x = normal(rows, depth, dtype=dtype, seed=1)
    shown = {
        "plain": x,
        "transposed": x.t().contiguous().t(),
        "batched": torch.stack([x, x + 1], 1).transpose(0, 1),
    }[draw(st.sampled_from(["plain", "transposed", "batched"]))]
    bias = normal(outputs, dtype=dtype, seed=2) if draw(st.booleans()) else None
    return LinearCall(shown, weight, bias)


@st.composite
def _capturing(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...], most: int) -> LinearCall:
    dtype = draw(st.sampled_from(dtypes))
    # Of few results the naive error may happen to be 0.
    rows, outputs = draw(st.integers(2, most // 2)), draw(st.integers(16, 16 + most))
    depth = draw(st.integers(1, most))
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    batched, gated = draw(st.booleans()), draw(st.booleans())
    weight = normal(*(batch if batched else ()), outputs, depth, dtype=dtype)
    if gated:
        weight = torch.cat([weight, weight.flip(-2)], -2)
    x = normal(*batch, rows, depth, dtype=dtype, seed=1)

    def captured(of: torch.Size, seed: int) -> Tensor:
        own = [size if draw(st.booleans()) else 1 for size in of[draw(st.integers(0, len(of))) :]]
        found, dtype = normal(*own, dtype=torch.float32, seed=seed) * 2, draw(_CAPTURED)
        # Of a negative number a conversion to uint8 makes a large one, and products overflow.
        found = (found.abs() if dtype == torch.uint8 else found).to(dtype)
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
