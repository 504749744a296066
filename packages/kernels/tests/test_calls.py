"""A call like one that was decided before is handed over whole, and only where it may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import torchyard
from torchyard import registry
from torchyard_kernels import topk
from torchyard_kernels._calls import Calls, _Known
from torchyard_kernels.topk._ops import CALLS
from torchyard_kernels.topk.contract import TOPK, TopKRequest

REQUEST = TopKRequest("cpu", "float32", 3, 10, 2)


class _Spy:
    """A kernel with a direct call that tells what it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []
        self.admitted: list[Any] = []

    def direct(self) -> _Spy:
        return self

    def outside(self) -> list[tuple[Any, ...]]:
        """Return what topk asked itself: with a dimension as it was given, where the op counts."""
        return [arguments for arguments in self.asked if arguments[2] == -1]

    def serve(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        return self.answer

    def admit(self, request: Any) -> None:
        self.admitted.append(request)


@pytest.fixture
def spy() -> Iterator[_Spy]:
    """Stand in for what the chosen kernels offer."""
    kept = registry().conclusions()
    before = kept.pop(CALLS._key, None)
    spy = _Spy()
    known = kept[CALLS._key] = _Known()
    assert known.of(spy) is spy
    yield spy
    kept.pop(CALLS._key)
    if before is not None:
        kept[CALLS._key] = before


def test_what_is_served_is_returned_and_nothing_else_is_looked_at(spy: _Spy) -> None:
    spy.answer = (torch.zeros(1), torch.ones(1))
    found = topk("anything", None, 3, 4, 5)  # type: ignore[arg-type]
    assert found == spy.answer
    assert spy.asked == [("anything", None, 3, 4, 5)]


def test_what_is_not_served_goes_the_other_way(spy: _Spy) -> None:
    x = torch.randn(3, 10)
    assert torch.equal(topk(x, 2).values, torch.topk(x, 2).values)
    # By the function, and by the op, which graphs call.
    assert spy.asked == [(x, 2, -1, True, True), (x, 2, 1, True, True)]


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "disturbance",
    [
        _Functions,
        _Operators,
        torch.profiler.profile,
        forward_ad.dual_level,
        lambda: torchyard.use(topk="kernels.sort"),
    ],
    ids=["functions", "operators", "profile", "forward derivatives", "demand"],
)
def test_a_call_that_something_else_takes_part_in_is_not_handed_over(
    spy: _Spy, disturbance: Callable[[], AbstractContextManager[Any]]
) -> None:
    x = torch.randn(3, 10)
    with disturbance():
        topk(x, 2)
    assert not spy.outside()
    topk(x, 2)
    assert len(spy.outside()) == 1


def test_transforms_and_compilers_are_not_handed_over(spy: _Spy) -> None:
    x = torch.randn(3, 10)
    torch.vmap(lambda row: topk(row, 2).values)(x)
    torch.compile(lambda x: topk(x, 2).values, backend="eager", fullgraph=True)(x)
    assert not spy.outside()


def test_a_decision_is_told_to_the_kernel_that_it_chose() -> None:
    known = registry().conclusions()
    before = known.pop(CALLS._key, None)
    try:
        chosen = Calls(TOPK).chosen(REQUEST)
        kept = known[CALLS._key]
        assert [kernel for kernel, _ in kept._kernels] == [chosen]
        assert len(kept.serve) == (1 if hasattr(chosen, "direct") else 0)
        # A kernel is asked once, however many requests it serves.
        Calls(TOPK).chosen(TopKRequest("cpu", "float32", 3, 11, 2))
        assert len(kept._kernels) == 1
    finally:
        if before is not None:
            known[CALLS._key] = before


def test_another_demand_starts_with_what_is_known_under_it() -> None:
    x = torch.randn(3, 10)
    topk(x, 2)
    outside = registry().conclusions()[CALLS._key]
    with torchyard.use(topk="kernels.sort"):
        topk(x, 2)
        inside = registry().conclusions()[CALLS._key]
        assert inside is not outside
        assert inside.serve == ()
    assert registry().conclusions()[CALLS._key] is outside
