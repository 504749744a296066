"""What implementations of ``recurrent/1`` and its gradients that record a reserve are tested by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from packages.kernels.tests.recurrent.cases import Case, cases, misses
from packages.kernels.tests.recurrent.test_gradients import exact_gradients, slopes
from torchyard_conformance._kernels._cases._recurrent import BackwardCase, RecurrentCase
from torchyard_conformance._kernels._cases._recurrent_grids import GRIDS
from torchyard_conformance._kernels._ruler import compare
from torchyard_kernels.recurrent.contract import (
    BACKWARD,
    FORWARD,
    Backward,
    RecurrentCall,
    RecurrentGradients,
    RecurrentKind,
    RecurrentResult,
)

__all__ = ["RecurrentSuite", "gradient_excess", "gradient_ratio", "tensors_of"]

_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)
# A relu has a kink: where a sum is within a rounding of 0, its gradient jumps.
_SMOOTH: Final = tuple(kind for kind in RecurrentKind if kind is not RecurrentKind.RNN_RELU)
_LAYOUTS: Final = ("contiguous", "strided", "transposed")


def _of_kit(contract: str, *laws: str) -> dict[str, RecurrentCase]:
    """Return cases of the conformance kit by name, but for float64."""
    return {
        f"{law}-{name}": case
        for law in laws
        for name, case in GRIDS[contract][law].items()
        if isinstance(case, RecurrentCase) and case.dtype != "float64"
    }


def _each(cases: Mapping[str, RecurrentCase], step: int) -> dict[str, RecurrentCase]:
    return {name: cases[name] for name in list(cases)[::step]}


_CALLS: Final = _of_kit(FORWARD, "matches", "padding", "not-finite", "any-memory")
_GRADIENTS: Final = _of_kit(BACKWARD, "matches", "padding", "any-memory")
# By the parameter of a test.
_TABLES: Final[Mapping[str, Mapping[str, RecurrentCase]]] = {
    "any_call": _CALLS,
    "some_call": _each(_CALLS, 10),
    "any_gradient": _GRADIENTS,
    "some_gradient": _each(_GRADIENTS, 8),
}
# 20 units are more than a tile has; sequences of their own lengths, in both directions.
_SMALL: Final[dict[str, Case]] = {
    **{
        str(kind): Case(kind, steps=3, hidden=20, bidirectional=True, ragged=True)
        for kind in RecurrentKind
    },
    "gru-half": Case(RecurrentKind.GRU, torch.float16, steps=3, hidden=20, ragged=True),
    "lstm-half": Case(RecurrentKind.LSTM, torch.float16, steps=3),
    "lstm-bfloat16": Case(RecurrentKind.LSTM, torch.bfloat16, steps=2),
    "gru-without-bias": Case(RecurrentKind.GRU, steps=2, bias=False),
    "layers": Case(RecurrentKind.RNN_TANH, steps=2, layers=2, bidirectional=True),
    "sequences": Case(RecurrentKind.GRU, steps=2, batch=18, batch_first=True),
    "one-number": Case(RecurrentKind.GRU, steps=1, batch=1, hidden=1),
    "one-number-lstm": Case(RecurrentKind.LSTM, steps=1, batch=1, hidden=1),
}


class RecurrentSuite(ABC):
    """Tests of an implementation; a subclass says how it is called, and pytest collects that.

    Attributes:
        projects: whether it computes projections.
        examples: how many random calls a test makes that is no sweep.
    """

    projects: ClassVar[bool] = True
    examples: ClassVar[int] = 3

    @abstractmethod
    def forward(self, call: RecurrentCall) -> RecurrentResult:
        """Compute a call's outputs."""

    @abstractmethod
    def backward(
        self,
        call: RecurrentCall,
        reserve: Tensor,
        grad_output: Tensor | None,
        grad_hidden: Tensor | None,
        grad_cell: Tensor | None,
    ) -> RecurrentGradients:
        """Compute gradients."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give tests the cases that the implementation computes."""
        for parameter in _TABLES.keys() & set(metafunc.fixturenames):
            found = {
                name: case
                for name, case in _TABLES[parameter].items()
                if self.projects or not case.proj
            }
            metafunc.parametrize(parameter, list(found.values()), ids=list(found))
        if "proj" in metafunc.fixturenames:
            metafunc.parametrize("proj", [0, 3] if self.projects else [0])

    def _forward(self, call: RecurrentCall) -> RecurrentResult:
        result = self.forward(call)
        for tensor in (result.output, result.hidden, result.cell, result.reserve):
            assert tensor is None or tensor.is_contiguous()
        return result

    def _ratio(self, case: RecurrentCase) -> float:
        """Return the greatest error of a case of the kit over its bound."""
        return max(compare(case, case.named_outputs(self._forward(*case.given()))).values())

    def test_some_calls_of_the_kit(self, some_call: RecurrentCase) -> None:
        assert self._ratio(some_call) <= 1

    @pytest.mark.sweep
    def test_each_call_of_the_kit(self, any_call: RecurrentCase) -> None:
        assert self._ratio(any_call) <= 1

    def test_some_gradients_of_the_kit(self, some_gradient: BackwardCase) -> None:
        assert gradient_ratio(some_gradient, self.backward) <= 1

    @pytest.mark.sweep
    def test_each_gradient_of_the_kit(self, any_gradient: BackwardCase) -> None:
        assert gradient_ratio(any_gradient, self.backward) <= 1

    @pytest.mark.parametrize("name", _SMALL)
    def test_forward_and_backward(self, name: str) -> None:
        call = replace(_SMALL[name].call(), reserve=True)
        result = self._forward(call)
        assert misses(result, call) == []
        assert gradient_excess(call, result, self.backward) <= 1

    @pytest.mark.parametrize("dtype", _DTYPES, ids=str)
    @pytest.mark.parametrize("kind", RecurrentKind)
    def test_each_cell_in_each_dtype(self, kind: RecurrentKind, dtype: torch.dtype) -> None:
        # More sequences than a threadgroup may have.
        case = Case(kind, dtype, steps=2, batch=9, hidden=5, bidirectional=True, ragged=True)
        call = replace(case.call(), reserve=True)
        assert misses(self._forward(call), call) == []

    @pytest.mark.parametrize("dtype", [str(dtype)[6:] for dtype in _DTYPES])
    @pytest.mark.parametrize("kind", _SMOOTH)
    def test_gradients_of_each_cell_in_each_dtype(self, kind: RecurrentKind, dtype: str) -> None:
        case = BackwardCase("", "contiguous", kind, dtype, 2, 9, 3, 5)
        case = replace(case, bidirectional=True, ragged=True)
        assert gradient_ratio(case, self.backward) <= 1

    def _is_near(self, case: Case) -> None:
        call = case.call()
        assert misses(self._forward(call), call) == []

    def _has_near_gradients(self, case: BackwardCase) -> None:
        assert gradient_ratio(case, self.backward) <= 1

    def test_sizes(self) -> None:
        drawn = cases(_DTYPES, 8).map(self._fitting)
        settings(max_examples=self.examples)(given(drawn)(self._is_near))()

    @pytest.mark.sweep
    def test_many_sizes(self) -> None:
        drawn = cases(_DTYPES, 40).map(self._fitting)
        settings(max_examples=60)(given(drawn)(self._is_near))()

    def test_gradients_of_sizes(self) -> None:
        drawn = _gradients(8, self.projects)
        settings(max_examples=self.examples)(given(drawn)(self._has_near_gradients))()

    @pytest.mark.sweep
    def test_gradients_of_many_sizes(self) -> None:
        drawn = _gradients(70, self.projects)
        settings(max_examples=60)(given(drawn)(self._has_near_gradients))()

    def _fitting(self, case: Case) -> Case:
        return case if self.projects else replace(case, proj=0)

    @pytest.mark.parametrize("kind", [RecurrentKind.GRU, RecurrentKind.LSTM])
    def test_nothing_beyond_a_sequences_end_reaches_a_result(self, kind: RecurrentKind) -> None:
        case = Case(kind, steps=3, batch=4, bidirectional=True, ragged=True)
        call = replace(case.call(), reserve=True)
        assert call.lengths is not None
        there = torch.arange(case.steps)[:, None] < call.lengths
        poisoned = replace(call, input=call.input.masked_fill(~there[..., None], torch.nan))
        assert poisoned.input.isnan().any()
        clean, dirty = self._forward(call), self._forward(poisoned)
        assert clean.reserve is not None
        assert dirty.reserve is not None
        assert torch.equal(clean.output, dirty.output)
        assert torch.equal(clean.hidden, dirty.hidden)
        assert torch.equal(clean.reserve, dirty.reserve)
        assert not clean.output[~there].any()
        assert not clean.reserve[:, ~there].any()

    @pytest.mark.parametrize("kind", [RecurrentKind.GRU, RecurrentKind.LSTM])
    def test_nothing_beyond_a_sequences_end_reaches_a_gradient(
        self, kind: RecurrentKind, proj: int
    ) -> None:
        case = BackwardCase("", kind=kind, steps=3, bidirectional=True, ragged=True)
        case = replace(case, proj=proj if kind is RecurrentKind.LSTM else 0)
        call, reserve, output, *rest = case.given()
        hidden = torch.arange(case.steps)[:, None] >= call.lengths
        assert hidden.any()
        poisoned = replace(call, input=call.input.masked_fill(hidden[..., None], torch.nan))
        clean = self.backward(call, reserve, output, *rest)
        output = output.masked_fill(hidden[..., None], torch.nan)
        dirty = self.backward(poisoned, reserve, output, *rest)
        assert all(map(torch.equal, tensors_of(clean), tensors_of(dirty)))
        assert not clean.input[hidden].any()

    def test_gradients_that_are_not_given_are_zero(self) -> None:
        call, reserve, output, hidden, cell = BackwardCase("", kind=RecurrentKind.LSTM).given()
        zeros = torch.zeros_like(output), torch.zeros_like(hidden)
        given = self.backward(call, reserve, *zeros, cell)
        spared = self.backward(call, reserve, None, None, cell)
        assert all(map(torch.equal, tensors_of(given), tensors_of(spared)))
        assert spared.input.abs().max() > 0
        given = self.backward(call, reserve, output, zeros[1], torch.zeros_like(cell))
        spared = self.backward(call, reserve, output, None, None)
        assert all(map(torch.equal, tensors_of(given), tensors_of(spared)))

    def test_a_reserve_that_the_forward_wrote_gives_the_same_gradients(self, proj: int) -> None:
        case = BackwardCase("", kind=RecurrentKind.LSTM, proj=proj, layers=2, ragged=True)
        call, reserve, *rest = case.given()
        own = self._forward(replace(call, reserve=True)).reserve
        assert own is not None
        assert own.dtype == torch.float32
        torch.testing.assert_close(own, reserve, rtol=1e-4, atol=1e-5)
        found, wanted = (tensors_of(self.backward(call, one, *rest)) for one in (own, reserve))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

    def test_equal_calls_give_equal_bits(self) -> None:
        call, reserve, *rest = BackwardCase("", hidden=20).given()
        first, second = (self._forward(call) for _ in range(2))
        assert torch.equal(first.output, second.output)
        assert torch.equal(first.hidden, second.hidden)
        found = [tensors_of(self.backward(call, reserve, *rest)) for _ in range(2)]
        assert all(map(torch.equal, *found))

    def test_a_batch_of_nothing(self) -> None:
        call = replace(Case(RecurrentKind.LSTM, batch=0).call(), reserve=True)
        result = self._forward(call)
        assert (result.output.shape, result.hidden.shape) == ((5, 0, 6), (1, 0, 6))
        assert result.reserve is not None
        found = self.backward(call, result.reserve, result.output, result.hidden, result.cell)
        assert [one.shape for one in tensors_of(found)] == [one.shape for one in call.tensors]
        assert not any(one.any() for one in tensors_of(found))


def tensors_of(found: RecurrentGradients) -> list[Tensor]:
    """Return gradients in the order of a call's tensors."""
    states = [found.input, found.hidden, *([] if found.cell is None else [found.cell])]
    return states + [weight for one in found.weights for weight in one if weight is not None]


def gradient_ratio(case: BackwardCase, backward: Backward) -> float:
    """Return the greatest error of a kit's case over its bound, twice that of a naive computation.

    Raises:
        Violated: it is above 1, or a gradient is not what it must be.
    """
    found = backward(*case.given())
    assert {str(one.dtype) for one in tensors_of(found)} == {f"torch.{case.dtype}"}
    return max(compare(case, case.named_outputs(found)).values())


def gradient_excess(call: RecurrentCall, result: RecurrentResult, backward: Backward) -> float:
    """Return the greatest error of a gradient over some roundings of its greatest element."""
    exact = exact_gradients(call)
    _, grads = slopes(result)
    output, hidden, cell = (*grads, None)[:3]
    assert result.reserve is not None
    found = tensors_of(backward(call, result.reserve, output, hidden, cell))
    eps = torch.finfo(call.input.dtype).eps
    worst = 0.0
    for got, right in zip(found, exact, strict=True):
        assert got.shape == right.shape
        assert got.dtype == call.input.dtype
        size = float(right.abs().max()) if right.numel() else 0.0
        if size:
            error = (got.double() - right).abs().max() / (8 * eps * size)
            worst = max(worst, float(error.nan_to_num(nan=torch.inf)))
    return worst


@st.composite
def _gradients(draw: st.DrawFn, most: int, projects: bool) -> BackwardCase:
    dtype = draw(st.sampled_from([str(dtype)[6:] for dtype in _DTYPES]))
    kind = draw(st.sampled_from(list(RecurrentKind) if dtype == "float32" else list(_SMOOTH)))
    # Of a few numbers the naive error, which is the bound, may be next to nothing by chance.
    hidden = draw(st.integers(4, most))
    projected = projects and kind is RecurrentKind.LSTM and draw(st.booleans())
    return BackwardCase(
        "drawn",
        *(draw(st.sampled_from(_LAYOUTS)), kind, dtype),
        *(draw(st.integers(*sizes)) for sizes in ((1, 4), (4, 11), (1, most))),
        hidden,
        draw(st.integers(2, hidden - 1)) if projected else 0,
        draw(st.integers(1, 2)),
        *(draw(st.booleans()) for _ in range(3)),
        whole=draw(st.booleans()),
    )
