"""Checked indices on a device of its own memory: faults wait there until something reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import torchyard_mps
from plugins.mps.tests.emulated import emulated
from plugins.simulated.tests.apple.stand_in import DEVICE, missing
from torchyard_mps import IndexRangeError
from torchyard_mps.operators import register

_Program = Callable[[Tensor, Tensor], Any]


def _x() -> Tensor:
    return torch.arange(12.0, device=DEVICE).reshape(3, 4)


def _index(*values: int) -> Tensor:
    return torch.tensor(values, device=DEVICE)


# Operator -> (program of x [3, 4] and an index, good, bad, what is said).
_PROGRAMS: Final[dict[str, tuple[_Program, tuple[int, ...], tuple[int, ...], str]]] = {
    "gather": (lambda x, i: x.gather(1, i[None]), (0, 3), (0, 4), "0 to 3 .* got 4 at"),
    "index_select": (lambda x, i: x.index_select(0, i), (2,), (3,), "0 to 2 .* got 3"),
    "index_copy_": (lambda x, i: x.index_copy_(0, i, x[:1].clone()), (2,), (7,), "got 7"),
    "index_add_": (lambda x, i: x.index_add_(0, i, x[:2].clone()), (0, 0), (0, 3), "got 3"),
    "scatter_": (lambda x, i: x.scatter_(0, i[None], 9.0), (0, 2), (0, -1), "got -1"),
    "take": (lambda x, i: x.take(i), (11, -12), (12,), "all elements of size 12"),
    "index": (lambda x, i: x[:, i], (3, -4), (4,), "dimension 1 of size 4, got 4"),
    "index_put_": (lambda x, i: x.__setitem__(i, x[:1].clone()), (-3,), (-4,), "got -4"),
    "max_unpool3d": (
        lambda x, i: functional.max_unpool3d(x[None, None, :1, :2], i[None, None, None], 2),
        (0, 15),
        (0, 16),
        r"0 to 15 in an image .* got 16 at \[0, 0, 0, 1\]",
    ),
    "embedding": (lambda x, i: functional.embedding(i, x), (2, 0), (2, 3), r"got 3 at \[1\]"),
}


@pytest.mark.parametrize("operator", _PROGRAMS)
def test_an_index_outside_is_reported_and_inside_nothing_changes(operator: str) -> None:
    program, good, bad, text = _PROGRAMS[operator]
    plain, watched = _x(), _x()
    expected = program(plain, _index(*good))
    with emulated(), torchyard_mps.checked():
        found = program(watched, _index(*good))
    assert torch.equal(plain, watched)
    assert expected is None or torch.equal(expected, found)
    message = f"(?s)^{operator}: index: expected .*{text}.*called at {__file__}"
    with (
        emulated(address_sanitizer=True),
        pytest.raises(IndexRangeError, match=message),
        torchyard_mps.checked(),
    ):
        program(_x(), _index(*bad))


def _reads(reached: list[str]) -> None:
    with torchyard_mps.checked():
        found = _x().index_select(0, _index(5)).sum()
        reached.append("what follows the call")
        found.cpu()
        reached.append("what follows the copy")


def test_a_fault_is_raised_where_the_host_reads() -> None:
    reached: list[str] = []
    with emulated(), pytest.raises(IndexRangeError, match="got 5"):
        _reads(reached)
    assert reached == ["what follows the call"]
    torchyard_mps.synchronize()


def test_a_fault_is_raised_by_the_call_where_errors_are_to_be_at_once() -> None:
    with (
        emulated(),
        torchyard_mps.errors(sync=True),
        torchyard_mps.checked(),
        pytest.raises(IndexRangeError, match="got 5"),
    ):
        _x().index_select(0, _index(5))


def test_a_fault_is_raised_by_a_synchronisation() -> None:
    with emulated(), torchyard_mps.checked():
        _x().index_select(0, _index(5))
        with pytest.raises(IndexRangeError, match="got 5"):
            torchyard_mps.synchronize()


class _Shifted(torch.autograd.Function):
    """Rows of x, whose gradient is added to the rows that follow: the last to one outside."""

    @staticmethod
    def forward(context: Any, x: Tensor, index: Tensor, threads: list[int]) -> Tensor:
        context.save_for_backward(index)
        context.threads = threads
        context.rows = x.shape
        return x.index_select(0, index)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (index,) = context.saved_tensors
        (grad,) = grads
        context.threads.append(threading.get_ident())
        return grad.new_zeros(context.rows).index_add_(0, index + 1, grad), None, None


def _shifted(weight: Tensor, threads: list[int]) -> None:
    apply: Any = _Shifted.apply
    with torchyard_mps.checked():
        apply(weight, _index(1, 2), threads).sum().backward()


def test_gradients_are_checked_in_the_threads_of_autograd() -> None:
    weight = nn.Parameter(_x())
    with emulated(), torchyard_mps.checked():
        functional.embedding(_index(1, 2, 1), weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.sum(1).tolist() == [0.0, 8.0, 4.0]
    threads: list[int] = []
    with emulated(), pytest.raises(IndexRangeError) as caught:
        _shifted(weight, threads)
    text = str(caught.value)
    assert "index_add_: index: expected 0 to 2 in dimension 0 of size 3, got 3 at [1]" in text
    assert f"called at {__file__}" in text
    assert threads != [threading.get_ident()]


def test_operators_of_ours_are_checked_as_torchs_are() -> None:
    with missing("take", "take.out"), register(DEVICE, operators=["take"]), emulated():
        with torchyard_mps.checked():
            assert _x().take(_index(11, -12)).tolist() == [11.0, 0.0]
        with pytest.raises(IndexRangeError, match="take: index"), torchyard_mps.checked():
            _x().take(_index(12))
        # Outside of the block, ours reads the indices at once.
        with pytest.raises(IndexError, match="take: index: expected -12 to 11, got 12"):
            _x().take(_index(12))
