"""Maps over lists in Metal give what their program gives in float64, and have no finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import pytest
import torch
from torch import Tensor

from packages.kernels.tests.pointwise.calls import call_of, excess, normal
from packages.kernels.tests.pointwise.suite import PointwiseSuite, chained
from packages.programs.tests.words import WORDS, Word, values
from plugins.mps.tests.emulated import emulated
from torchyard_kernels.pointwise.contract import PointwiseCall
from torchyard_mps.pointwise import compute, map_launches


class TestPointwise(PointwiseSuite):
    """The suite of every implementation."""

    examples: ClassVar[int] = 10

    def compute(self, call: PointwiseCall) -> tuple[Sequence[Tensor], ...]:
        """Compute a call; a finding is an error."""
        with emulated():
            return compute(call)


def test_what_a_captured_tensor_does_not_have_is_nan() -> None:
    table = torch.ones(2)
    with emulated():
        ((found,),) = compute(call_of(lambda i: table[i], [torch.tensor([1, 5])]))
    assert found.isnan().tolist() == [False, True]


def test_what_is_written_to_an_input_has_no_buffer_of_its_own() -> None:
    ps, gs = normal([(40,), (3, 5), (0,)], seed=4), normal([(40,), (3, 5), (0,)], seed=5)
    (launch,), _ = map_launches(call_of(lambda p, g: (p - 0.1 * g, p * g), ps, gs, out=(ps, gs)))
    # Two of each group, and the table.
    assert (len(launch.buffers), len(launch.updated), launch.outputs) == (5, 4, ())


def test_a_launch_takes_as_many_groups_as_there_are_buffers_for() -> None:
    xs, ys = normal([(5,), (33,), (2, 9)] * 9), normal([(5,), (33,), (2, 9)] * 9, seed=1)
    call = call_of(lambda x, y: x * y + 1, xs, ys)
    launches, _ = map_launches(call)
    assert [len(launch.buffers) for launch in launches] == [31, 31, 22]
    with emulated():
        assert excess(call, compute) <= 1


def test_nothing_is_launched_for_nothing() -> None:
    assert map_launches(call_of(lambda x: x + 1, [torch.ones(0), torch.ones(3, 0)]))[0] == []


def test_orders_of_threads_change_nothing() -> None:
    xs, ys = normal([(1037,), (5, 3)]), normal([(1,), (3,)], seed=1)
    with emulated(orders=3, address_sanitizer=True):
        assert excess(call_of(chained, xs, ys, [0.5, 2.0]), compute) <= 1


# Metal has no float64.
_TRIED: Final = [word for word in WORDS if word.word != "double"]
# Inputs are four, and results of a launch so many at most.
_MOST: Final = 25


def _batches() -> list[list[Word]]:
    """Return words by domain, and as many at once as a launch has buffers for."""
    domains = {word.domain: None for word in _TRIED}
    words = [[word for word in _TRIED if word.domain is domain] for domain in domains]
    return [of[start : start + _MOST] for of in words for start in range(0, len(of), _MOST)]


@pytest.mark.parametrize("batch", _batches(), ids=lambda batch: f"{batch[0].word}-{len(batch)}")
def test_the_whole_vocabulary(batch: list[Word]) -> None:
    given = values(batch[0])

    def function(x: Any, y: Any, i: Any, j: Any) -> Any:
        return tuple(word.function(x, y, i, j) for word in batch)

    with emulated():
        found = compute(call_of(function, *([item] for item in given)))
    wide = [item.double() if item.is_floating_point() else item for item in given]
    for word, (got,) in zip(batch, found, strict=True):
        _check_word(word, got, word.function(*given), word.function(*wide))


def _check_word(word: Word, got: Tensor, narrow: Tensor, wide: Tensor) -> None:
    assert got.dtype == narrow.dtype
    rounds = narrow.dtype in (torch.float16, torch.bfloat16) or word.word == "to"
    wanted = (narrow if rounds or not got.is_floating_point() else wide).double()
    finite, value = wanted.isfinite(), got.double()
    torch.testing.assert_close(value[~finite], wanted[~finite], equal_nan=True)
    error = (value[finite] - wanted[finite]).abs() / wanted[finite].abs().clamp_min(1.0)
    # A product of halves is rounded once, where torch rounds its factors alone too.
    eps = torch.finfo(got.dtype).eps if rounds else torch.finfo(torch.float32).eps
    assert float(error.max()) <= word.tolerance * eps, word.word
