"""A repeated call takes the fast path, and only where nothing but the kernel takes part."""

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
from torchyard.dispatch import FastPath, decision_cache
from torchyard_kernels import topk
from torchyard_kernels.topk._ops import FAST_PATH
from torchyard_kernels.topk.contract import TOPK, TopKRequest

REQUEST = TopKRequest("cpu", "float32", 3, 10, 2)


class _Spy:
    """A kernel that offers a path, which notes what it is given."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []
        self.offered: list[Any] = []
        self.enabled: list[Any] = []

    def fast_path(self, request: Any) -> _Spy:
        self.offered.append(request)
        return self

    def outside(self) -> list[tuple[Any, ...]]:
        """Return what topk asked itself: with a dimension as it was given, where the op counts."""
        return [arguments for arguments in self.asked if arguments[2] == -1]

    def try_call(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        return self.answer

    def enable(self, request: Any) -> bool:
        # A path of one dtype.
        if self.enabled and self.enabled[0].dtype != request.dtype:
            return False
        self.enabled.append(request)
        return True

    def clear(self) -> None:
        self.enabled.clear()


@pytest.fixture
def spy() -> Iterator[_Spy]:
    """Stand in for what the chosen kernels offer."""
    cache = decision_cache()
    before = cache.pop(FAST_PATH._paths_key, None)
    spy = _Spy()
    FAST_PATH.enable(cache, spy, REQUEST)
    yield spy
    cache.pop(FAST_PATH._paths_key)
    if before is not None:
        cache[FAST_PATH._paths_key] = before


def test_what_a_path_computes_is_returned_unchecked(spy: _Spy) -> None:
    spy.answer = (torch.zeros(1), torch.ones(1))
    found = topk("anything", None, 3, 4, 5)  # type: ignore[arg-type]
    assert found == spy.answer
    assert spy.asked == [("anything", None, 3, 4, 5)]


def test_what_no_path_computes_goes_to_the_kernel(spy: _Spy) -> None:
    x = torch.randn(3, 10)
    assert torch.equal(topk(x, 2).values, torch.topk(x, 2).values)
    torch.ops.torchyard_kernels.topk(x, None, 2, 1, True, "sorted")
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


def test_a_kernel_is_asked_for_another_path_where_its_paths_are_of_another_kind() -> None:
    path, cache, kernel = FastPath(TOPK), decision_cache(), _Spy()
    other = TopKRequest("cpu", "float64", 3, 10, 2)
    path.enable(cache, kernel, REQUEST, key="k")
    path.enable(cache, kernel, REQUEST, key="k")
    assert (kernel.offered, kernel.enabled) == ([REQUEST], [REQUEST, REQUEST])
    second = _Spy((1,))
    kernel.fast_path = lambda request: second  # type: ignore[method-assign]
    path.enable(cache, kernel, other, key="k")
    assert second.enabled == [other]
    assert path.try_call("k", 5) == (1,)
    # The path that computed a call is asked first for the next one.
    kernel.asked.clear()
    assert path.try_call("k", 6) == (1,)
    assert not kernel.asked
    assert path.try_call("another", 7) is None
    assert second.asked == [(5,), (6,)]


def test_a_kernel_that_offers_nothing_is_passed_over() -> None:
    path = FastPath(TOPK)
    cache: dict[Any, Any] = {}
    path.enable(cache, object(), REQUEST)
    assert not cache
    kernel = _Spy((1,))
    kernel.fast_path = lambda request: None  # type: ignore[method-assign,assignment,return-value]
    path.enable(decision_cache(), kernel, REQUEST)
    assert path.try_call(None, 1) is None


def test_what_was_cleared_is_not_asked_until_it_is_enabled_again() -> None:
    path, kernel = FastPath(TOPK), _Spy((1,))
    path.enable(decision_cache(), kernel, REQUEST)
    assert path.try_call(None, 1) == (1,)
    path.clear()
    assert path.try_call(None, 1) is None
    path.enable(decision_cache(), kernel, REQUEST)
    assert path.try_call(None, 1) == (1,)


def test_what_follows_from_an_older_decision_is_dropped() -> None:
    path, kernel = FastPath(TOPK), _Spy((1,))
    cache = decision_cache()
    registry()._plugins_changed()
    path.enable(cache, kernel, REQUEST)
    assert path.try_call(None, 1) is None


def test_keys_without_end_push_others_out() -> None:
    path, kernel = FastPath(TOPK), _Spy((1,))
    for key in range(1000):
        path.enable(decision_cache(), kernel, REQUEST, key=key)
        assert path.try_call(key, 1) == (1,)
    assert len(decision_cache()[path._paths_key].calls) <= 256


def test_another_demand_starts_with_what_was_enabled_under_it() -> None:
    x = torch.randn(3, 10)
    topk(x, 2)
    outside = decision_cache()
    with torchyard.use(topk="kernels.sort"):
        topk(x, 2)
        inside = decision_cache()
        assert inside is not outside
        assert FAST_PATH._paths_key not in inside
    assert decision_cache() is outside
