"""A repeated call takes the fast path, and only where nothing but the kernel takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from torchyard import registry
from torchyard_attention import (
    AuxOutput,
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
    masks,
    scores,
)
from torchyard_attention._ops._computation import FAST_PATH, enable
from torchyard_attention.contract import AttentionCall, AttentionRequest, AttentionResult

from .settings import context, deterministic, environment
from .spies import Spy, spying


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spy]:
    """Stand in for what the chosen forwards offer to calls that go past the op."""
    # The op's kernel, below all that takes part in a call, asks too: see test_op_fast_path.py.
    monkeypatch.setattr("torchyard_attention._ops._attention.try_op", lambda given: None)
    with spying() as spy:
        yield spy


def _query() -> Tensor:
    return torch.randn(1, 2, 3, 4)


def test_the_fast_path_returns_the_form_that_was_asked_for(spy: Spy) -> None:
    query = _query()
    out, lse = torch.zeros(1), torch.ones(1)
    spy.answer = out
    assert flex_attention(query, query, query) is out
    assert flex_attention(query, query, query, return_aux=AuxRequest()) == (out, AuxOutput())
    spy.answer = (out, lse)
    assert flex_attention(query, query, query, return_lse=True) == (out, lse)
    found = flex_attention(query, query, query, return_aux=AuxRequest(lse=True))
    assert found == (out, AuxOutput(lse))
    assert [asked[3:] for asked in spy.asked] == [
        (None, None, False, False, None),
        (None, None, False, False, None),
        (None, None, False, True, None),
        (None, None, False, True, None),
    ]


def test_a_call_that_the_path_does_not_compute_takes_the_slow_path(spy: Spy) -> None:
    query = _query()
    expected = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    torch.testing.assert_close(flex_attention(query, query, query), expected)
    assert len(spy.asked) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"score_mod": lambda score, b, h, q, k: score},
        {"implementation": "attention.sdpa"},
        {"kernel_options": {"cpu.rows_per_item": 64}},
        {"return_aux": AuxRequest(max_scores=True)},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_call_with_more_to_it_is_not_handed_over(spy: Spy, arguments: dict[str, Any]) -> None:
    query = _query()
    flex_attention(query, query, query, **arguments)
    assert not spy.asked


def test_a_known_score_mod_is_handed_over_as_a_program_and_its_tensors(spy: Spy) -> None:
    query = _query()
    mask = create_block_mask(masks.causal, None, None, 3, 3, device="cpu")
    slopes = [torch.rand(2) for _ in range(4)]
    for own in slopes:
        flex_attention(query, query, query, scores.alibi(own), mask)
    text, captured = spy.asked[-1][7]
    assert text.startswith('["getitem",["$0","h"],{}]')
    assert len(captured) == 1
    assert captured[0] is slopes[-1]
    assert spy.asked[-1][3].causal


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


class _Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "mode",
    [
        _Functions,
        _Ops,
        torch.profiler.profile,
        forward_ad.dual_level,
        deterministic,
        environment,
        context,
    ],
    ids=lambda mode: mode.__name__,
)
def test_a_mode_or_another_setting_keeps_it_from_being_handed_over(
    spy: Spy, mode: Callable[[], AbstractContextManager[object]]
) -> None:
    query = _query()
    known = scores.softcap(5.0)
    for _ in range(2):
        flex_attention(query, query, query, known)
    spy.asked.clear()
    with mode():
        flex_attention(query, query, query)
        flex_attention(query, query, query, known)
    assert not spy.asked
    flex_attention(query, query, query)
    flex_attention(query, query, query, known)
    assert len(spy.asked) == 2


def test_a_transform_keeps_it_from_being_handed_over(spy: Spy) -> None:
    query = torch.randn(2, 1, 2, 3, 4)
    torch.func.vmap(flex_attention)(query, query, query)
    assert not spy.asked


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_trace_keeps_it_from_being_handed_over(spy: Spy) -> None:
    query = _query()
    torch.jit.trace(lambda q: flex_attention(q, q, q), query, check_trace=False)
    assert not spy.asked


def test_compiled_code_does_not_hand_over(spy: Spy) -> None:
    query = _query()
    torch.compile(flex_attention, backend="eager", fullgraph=True)(query, query, query)
    assert not spy.asked


def test_a_mask_is_handed_over_with_its_lengths_and_kind(spy: Spy) -> None:
    query = _query()
    mask = create_block_mask(masks.causal, None, None, 3, 3, device="cpu")
    flex_attention(query, query, query, block_mask=mask)
    flex_attention(query, query, query, block_mask=mask)
    first, second = (asked[3] for asked in spy.asked)
    assert first is second
    assert first.lengths == (3, 3)
    assert first.causal
    assert first.blocks.bits is mask.bits
    assert first.blocks.kv_indices is mask.kv_indices


def test_a_mask_whose_bits_are_old_or_that_is_torchs_is_not_handed_over(spy: Spy) -> None:
    from torch.nn.attention.flex_attention import create_block_mask as torchs

    query = _query()
    limit = torch.tensor(2)
    mask = create_block_mask(lambda b, h, q, k: k < limit, None, None, 3, 3, device="cpu")
    assert isinstance(mask, BlockMask)
    flex_attention(query, query, query, block_mask=mask)
    assert len(spy.asked) == 1
    limit.fill_(1)
    flex_attention(query, query, query, block_mask=mask)
    flex_attention(
        query, query, query, block_mask=torchs(masks.causal, None, None, 3, 3, device="cpu")
    )
    assert len(spy.asked) == 1


class _Offering:
    """A forward that offers a path."""

    def __init__(self, spy: Spy | None) -> None:
        self.spy = spy
        self.made = 0

    def fast_path(self, request: AttentionRequest) -> Spy | None:
        self.made += 1
        return self.spy

    def __call__(self, call: AttentionCall) -> AttentionResult:
        return AttentionResult(call.query)


def test_each_forward_is_asked_once_and_told_the_requests_that_are_its_own() -> None:
    query = _query()
    request = AttentionRequest("cpu", "float32", 1, 2, 2, 3, 3, 4, 4)
    call = AttentionCall(query, query, query, None, None, 1.0, False, False)
    cache: dict[Any, Any] = {}
    one, other = Spy(), Spy()
    first, second, third = _Offering(one), _Offering(other), _Offering(None)
    for forward in (first, second, third, first, lambda call: AttentionResult(query)):
        enable(cache, forward, request, call)
    assert (first.made, second.made, third.made) == (1, 1, 1)
    assert one.enabled == [(request, call)] * 2
    assert other.enabled == [(request, call)]
    assert cache[FAST_PATH._paths_key].calls == {None: (one.try_call, other.try_call)}


def test_the_forward_that_the_registry_chose_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, AttentionRequest]] = []
    monkeypatch.setattr(
        "torchyard_attention._ops._computation.enable",
        lambda kept, forward, request, call: told.append((forward, request)),
    )
    query = torch.randn(1, 2, 5, 40)
    flex_attention(query, query, query)
    assert len(told) == 1
    forward, request = told[0]
    assert forward is registry().resolve("attention/1", request)
    flex_attention(query, query, query, implementation="attention.sdpa")
    flex_attention(query, query, query, kernel_options={"cpu.rows_per_item": 64})
    assert len(told) == 1
