"""A call skips torch's dispatcher only where nothing but the kernel takes part in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from torchyard.dispatch import is_plain_call
from torchyard_attention import flex_attention


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


class _Ops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def _profile() -> Iterator[None]:
    with torch.profiler.profile():
        yield


@pytest.mark.parametrize(
    "mode", [_Functions, _Ops, _profile, forward_ad.dual_level], ids=lambda mode: mode.__name__
)
def test_a_mode_sees_the_call(mode: Callable[[], AbstractContextManager[object]]) -> None:
    query = torch.randn(1, 1, 4, 8)
    assert is_plain_call([query])
    with mode():
        assert not is_plain_call([query])
    assert is_plain_call([query])


def test_a_transform_sees_the_call() -> None:
    seen = []
    torch.func.vmap(lambda x: seen.append(is_plain_call([torch.zeros(1)])) or x)(torch.zeros(2))
    assert seen == [False]


class _Subclass(Tensor):
    pass


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(2, dtype=torch.complex64).conj().imag,
        torch._efficientzerotensor((2,)),
        torch.zeros(2).as_subclass(_Subclass),
    ],
    ids=["negated", "zero", "subclass"],
)
def test_a_tensor_of_another_kind_goes_through_the_dispatcher(tensor: Tensor) -> None:
    assert not is_plain_call([torch.zeros(2), tensor])


@pytest.mark.parametrize("context", [nullcontext, torch.no_grad, torch.inference_mode])
def test_plain_tensors_go_to_the_kernel(
    context: Callable[[], AbstractContextManager[object]],
) -> None:
    with context():
        assert is_plain_call([torch.zeros(2), torch.nn.Parameter(torch.zeros(2))])


def test_a_profile_and_a_dispatch_mode_name_the_op() -> None:
    query = torch.randn(1, 1, 4, 8)
    with torch.profiler.profile() as profile:
        flex_attention(query, query, query)
    assert "torchyard_attention::forward" in {event.key for event in profile.key_averages()}
    with _Ops() as ops:
        flex_attention(query, query, query)
    assert "torchyard_attention.forward.default" in ops.seen


@pytest.mark.parametrize("return_lse", [False, True])
def test_both_ways_give_the_same_bits(return_lse: bool) -> None:
    query, key, value = (torch.randn(2, 4, 40, 16) for _ in range(3))
    direct = flex_attention(query, key, value, return_lse=return_lse)
    with _Functions():
        dispatched = flex_attention(query, key, value, return_lse=return_lse)
    torch.testing.assert_close(direct, dispatched, rtol=0, atol=0)
    assert isinstance(direct, tuple) == return_lse


def test_a_negated_query_is_negated() -> None:
    query = torch.randn(1, 2, 8, 4, dtype=torch.complex64).conj().imag
    key = torch.randn(1, 2, 8, 4)
    assert query.is_neg()
    torch.testing.assert_close(
        flex_attention(query, key, key), flex_attention(query.resolve_neg(), key, key)
    )
