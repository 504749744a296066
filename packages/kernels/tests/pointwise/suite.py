"""What each implementation of ``pointwise/1`` that computes in float32 is tested by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from packages.kernels.tests.pointwise.calls import call_of, call_of_text, excess, normal
from torchyard_conformance._kernels._cases._pointwise import GRIDS, PointwiseCase
from torchyard_conformance._kernels._ruler import compare
from torchyard_kernels.optim import AdamW
from torchyard_kernels.pointwise import _prepared
from torchyard_kernels.pointwise.contract import POINTWISE, PointwiseCall

__all__ = ["PointwiseSuite", "chained"]

_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)
_INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_CASES: Final = {
    f"{law}-{name}": case
    for law in ("matches", "written", "not-finite", "any-memory")
    for name, case in GRIDS[POINTWISE][law].items()
    if case.dtype != "float64"
}
_SHAPES: Final = [(3, 4), (1037,), (0,), (2, 3, 5), (2048,), (1,), (5, 0, 2), (1, 1)]
# Of optimisers' parameters.
_PARAMS: Final = [(7, 9), (300,), (16, 3, 1)]
_STEPS: Final = 3


def chained(x: Any, y: Any, a: Any) -> Any:
    """Return a function of two tensors and a number that takes several steps."""
    return torch.tanh(x) * y - torch.exp(x * a) / (y * y + 1)


class PointwiseSuite(ABC):
    """Tests of an implementation; a subclass says how it is called, and pytest collects that.

    Attributes:
        examples: how many random calls a test makes that is no sweep.
    """

    examples: ClassVar[int] = 25

    @abstractmethod
    def compute(self, call: PointwiseCall) -> tuple[Sequence[Tensor], ...]:
        """Compute a call."""

    def _kit_ratio(self, case: PointwiseCase) -> float:
        """Return the greatest error of a case of the conformance kit over its bound."""
        (call,) = case.given()
        results = self.compute(call)
        return max(compare(case, case.named_outputs(call.out or results)).values())

    @pytest.mark.parametrize("name", [name for name in _CASES if "large" not in name][::4])
    def test_some_cases_of_the_kit(self, name: str) -> None:
        assert self._kit_ratio(_CASES[name]) <= 1

    @pytest.mark.sweep
    @pytest.mark.parametrize("name", _CASES)
    def test_each_case_of_the_kit(self, name: str) -> None:
        assert self._kit_ratio(_CASES[name]) <= 1

    @pytest.mark.parametrize("dtype", _FLOATS, ids=str)
    def test_groups_of_many_sizes(self, dtype: torch.dtype) -> None:
        xs, ys = normal(_SHAPES, dtype), normal(_SHAPES, dtype, 1)
        assert excess(call_of(chained, xs, ys, [0.5] * len(xs)), self.compute) <= 1
        # A tensor of no dimensions is another kind of operand, and makes a call of its own.
        call = call_of(chained, normal([()], dtype), normal([()], dtype, 1), [0.5])
        assert excess(call, self.compute) <= 1

    @pytest.mark.parametrize("dtype", _INTEGERS, ids=str)
    def test_integers_wrap_around_as_torchs(self, dtype: torch.dtype) -> None:
        limits = torch.iinfo(dtype)
        x = torch.tensor([limits.min, limits.max, 0, 1, 7, 100], dtype=dtype)
        y = torch.tensor([3, 2, 5, limits.max, limits.min, 100], dtype=dtype)

        def function(x: Any, y: Any, n: Any) -> Any:
            return x + y, x * y - n, -x, torch.abs(y), x & y, x > y, x / 4

        call = call_of(function, [x, x[:3]], [y, y[3:]], [3, -5])
        assert excess(call, self.compute) <= 1

    def test_half_precision_loses_nothing_between_steps(self) -> None:
        xs = [torch.full((64,), 2048.0, dtype=torch.float16)]
        table = torch.tensor([2048.0], dtype=torch.float16)
        zero = [torch.zeros(64, dtype=torch.int64)]
        (found,) = self.compute(call_of(lambda x: (x + 1) - 2048, xs))
        assert torch.equal(found[0], xs[0] / 2048)
        # A conversion in the function rounds: 2049 is no float16.
        (found,) = self.compute(call_of(lambda x: (x + 1).half() - 2048, xs))
        assert not found[0].any()
        (found,) = self.compute(call_of(lambda x: ((x + 1).half() * 1.0005, x)[0], xs))
        assert torch.equal(found[0], torch.full((64,), 2048 * 1.0005).half())
        (found,) = self.compute(call_of(lambda i: (table[i] + 1) - 2048, zero))
        assert torch.equal(found[0], xs[0] / 2048)

    def _agrees_with_torch(self, operands: list[Tensor]) -> None:
        def function(x: Any, y: Any, z: Any) -> Any:
            return torch.where(x > y, x * 2 + y, y), z == 1

        shape = torch.broadcast_shapes(*(operand.shape for operand in operands))
        found = self.compute(call_of(function, *([operand] for operand in operands)))
        for (result,), wanted in zip(found, function(*operands), strict=True):
            assert (result.dtype, result.shape) == (wanted.dtype, shape)
            assert torch.equal(result, wanted.expand(shape))

    def test_tensors_broadcast_and_promote_as_torchs(self) -> None:
        settings(max_examples=self.examples)(given(_operands())(self._agrees_with_torch))()

    @pytest.mark.sweep
    def test_many_tensors_broadcast_and_promote(self) -> None:
        settings(max_examples=300)(given(_operands())(self._agrees_with_torch))()

    def test_numbers_are_those_of_their_group(self) -> None:
        xs = normal([(5,), (2, 3)])
        call = call_of(lambda x, a, n: x * a + n, xs, [0.1, 1e30], [3, -4])
        assert excess(call, self.compute) <= 1
        chosen = call_of(lambda x, flag: torch.where(x > 0, flag, False), xs, [True, False])
        assert excess(chosen, self.compute) <= 1
        numbers = call_of(lambda x, a: (x, a, 2), xs, [0.1, -torch.inf])
        assert excess(numbers, self.compute) <= 1

    def test_numbers_are_computed_with_one_another_in_float64(self) -> None:
        ones = [torch.ones(3), torch.ones(2)]
        # In float32 1 + 1e-9 is 1, and 1 - 0.999 ** 1 would be off by 5e-5.
        (near,) = self.compute(call_of(lambda x, a: x * ((a - 1) * 1e9), ones, [1 + 1e-9, 1.0]))
        (rates,) = self.compute(call_of(lambda x, b, t: x / (1 - b**t), ones, [0.999] * 2, [1, 3]))
        assert [float(one[0]) for one in near] == pytest.approx([1.0, 0.0], rel=1e-6)
        right = [1 / (1 - 0.999**step) for step in (1, 3)]
        assert [float(one[0]) for one in rates] == pytest.approx(right, rel=1e-7)

    @pytest.mark.parametrize("dtype", _FLOATS, ids=str)
    def test_captured_tensors(self, dtype: torch.dtype) -> None:
        row, scale = normal([(3,)], dtype, 7)[0], torch.tensor(0.5, dtype=dtype)
        xs = normal([(2, 3), (4, 1), (0, 3)], dtype, 3)
        assert excess(call_of(lambda x: x * scale + row, xs), self.compute) <= 1
        table = normal([(6,)], dtype, 8)[0][::2]
        indices = [torch.tensor([0, 2, -1]), torch.tensor([[1], [-1], [-3]])]
        assert excess(call_of(lambda i: table[i] * scale + i, indices), self.compute) <= 1

    def test_results_are_written_in_place(self) -> None:
        shapes = [(40,), (3, 5), (0,)]
        ps, gs = normal(shapes, seed=4), normal(shapes, seed=5)
        ps[1] = ps[1].t().contiguous().t()
        call = call_of(lambda p, g: (p - 0.1 * g, p * g), ps, gs, out=(ps, gs))
        assert excess(call, self.compute) <= 1
        swapped = call_of(lambda x, y: (y, x), ps, gs, out=(ps, gs))
        assert excess(swapped, self.compute) <= 1

    def test_results_are_written_to_tensors_of_any_layout_and_dtype(self) -> None:
        x, y = normal([(6, 8), (8,)])
        out = torch.zeros(8, 12, dtype=torch.bfloat16).t()[::2]
        call = call_of(lambda x, y: x + y / 3, [x], [y], out=([out],))
        assert excess(call, self.compute) <= 1
        narrow = torch.zeros(6, 8, dtype=torch.float16)
        assert excess(call_of(lambda x: x / 3, [x], out=([narrow],)), self.compute) <= 1
        wide = torch.zeros(6, 8)
        assert excess(call_of(lambda x: x > 0, [x], out=([wide],)), self.compute) <= 1

    @pytest.mark.parametrize("amsgrad", [False, True])
    @pytest.mark.parametrize("decay", [0.0, 0.1])
    def test_adamw(self, amsgrad: bool, decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
        options: dict[str, Any] = {"lr": 0.01, "weight_decay": decay, "amsgrad": amsgrad}

        def write(
            text: str, captured: tuple[Tensor, ...], lists: Sequence[Any], out: Sequence[Any]
        ) -> None:
            groups = len(lists[0])
            lists = [list(item) if isinstance(item, list) else [item] * groups for item in lists]
            self.compute(call_of_text(text, lists, tuple(out), captured))

        monkeypatch.setattr(_prepared, "write", write)
        found = _stepped(lambda params: AdamW(params, **options), torch.float32, transposed=True)
        # Without decay AdamW is Adam.
        kind = torch.optim.AdamW if decay else torch.optim.Adam
        assert _step_excess(found, lambda params: kind(params, foreach=False, **options)) <= 1

    @pytest.mark.parametrize("nesterov", [False, True])
    def test_sgd_with_momentum(self, nesterov: bool) -> None:
        compute = self.compute

        class Sgd:
            def __init__(self, params: list[Tensor]) -> None:
                self.params = params
                self.moments = [torch.zeros_like(param) for param in params]

            def step(self) -> None:
                def moved(p: Any, v: Any, g: Any, rate: Any, momentum: Any) -> tuple[Any, Any]:
                    v = v * momentum + g
                    return p - rate * (g + momentum * v if nesterov else v), v

                gradients = [param.grad for param in self.params]
                numbers = [[number] * len(_PARAMS) for number in (0.1, 0.9)]
                lists = (self.params, self.moments, gradients, *numbers)
                compute(call_of(moved, *lists, out=(self.params, self.moments)))

        found = _stepped(Sgd, torch.float32)
        options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "nesterov": nesterov}
        theirs = _step_excess(
            found, lambda params: torch.optim.SGD(params, foreach=False, **options)
        )
        assert theirs <= 1


@st.composite
def _operands(draw: st.DrawFn) -> list[Tensor]:
    dtypes = [*_FLOATS, *_INTEGERS, torch.bool]
    shape = draw(st.lists(st.integers(0, 4), min_size=0, max_size=4))

    def operand() -> Tensor:
        cut = draw(st.integers(0, len(shape)))
        own = [1 if size and draw(st.booleans()) else size for size in shape[cut:]]
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
        tensor = torch.randint(0, 4, own, generator=generator).to(draw(st.sampled_from(dtypes)))
        if tensor.dim() > 1 and draw(st.booleans()):
            tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        return tensor

    return [operand(), operand(), operand()]


def _stepped(
    make: Callable[[list[Tensor]], Any], dtype: torch.dtype, *, transposed: bool = False
) -> list[Tensor]:
    """Return parameters after some steps with the same gradients in each dtype."""
    params = [one.to(dtype) for one in normal(_PARAMS)]
    if transposed:
        params[0] = params[0].t().contiguous().t()
    optimizer = make(params)
    for step in range(_STEPS):
        for param, gradient in zip(params, normal(_PARAMS, seed=step + 1), strict=True):
            param.grad = gradient.to(dtype)
        optimizer.step()
    return params


def _step_excess(found: list[Tensor], make: Callable[[list[Tensor]], Any]) -> float:
    """Return the greatest error over its bound: twice that of torch in float32, and a rounding."""
    naive, exact = _stepped(make, torch.float32), _stepped(make, torch.float64)
    worst = 0.0
    for got, rough, right in zip(found, naive, exact, strict=True):
        bound = 2 * (rough.double() - right).abs().max()
        bound = bound + torch.finfo(torch.float32).eps * right.abs().max()
        worst = max(worst, float((got.double() - right).abs().max() / bound))
    return worst
