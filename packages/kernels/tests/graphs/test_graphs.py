"""What a captured function does again, and what keeps a function from being captured."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from torchyard_kernels import (
    Graph,
    GraphBucketError,
    GraphParityError,
    Padding,
    UncapturableError,
    capture,
    foreach_map_,
    topk,
)
from torchyard_kernels.graphs.implementations import recorded as on_cpu
from torchyard_kernels.graphs.implementations._jit_replay import NotExpressibleError

from .models import Decoder, chain


@pytest.fixture(params=["interpreter", "calls"])
def mechanism(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Replay by either way; the second as where the interpreter cannot take a step."""
    if request.param == "calls":

        def refuse(plan: object) -> Any:
            raise NotExpressibleError("anything")

        monkeypatch.setattr(on_cpu, "jit_replay", refuse)
    return str(request.param)


def _holds(graph: Graph, mechanism: str) -> None:
    assert graph.mechanism.startswith("calls" if mechanism == "calls" else "torch's interpreter")


def test_a_replay_sees_the_values_of_the_day(mechanism: str) -> None:
    x, y = torch.randn(3, 4), torch.rand(3, 4)
    graph = capture(chain, x, y)
    _holds(graph, mechanism)
    for _ in range(3):
        x, y = torch.randn(3, 4), torch.rand(3, 4)
        assert torch.equal(graph(x, y), chain(x, y))
        graph.check(x, y)


def test_inputs_may_be_written_in_place_and_results_are_overwritten(mechanism: str) -> None:
    graph = capture(lambda x: x * 2, torch.zeros(3))
    first = graph(torch.ones(3))
    graph.inputs[0].fill_(5)
    second = graph.replay()
    assert second is not first or second.tolist() == [10, 10, 10]
    assert first.tolist() == [10, 10, 10]


def test_results_keep_their_structure_and_what_is_no_tensor() -> None:
    graph = capture(lambda x, n: {"sum": x.sum(), "parts": [x * n, "text"]}, torch.ones(2), 3)
    found = graph(torch.full((2,), 2.0), 3)
    assert found["sum"] == 4
    assert found["parts"][0].tolist() == [6, 6]
    assert found["parts"][1] == "text"


def test_what_the_function_reads_from_outside_is_seen_as_it_is() -> None:
    weight = torch.ones(3)
    graph = capture(lambda x: x * weight, torch.ones(3))
    weight.fill_(4)
    assert graph(torch.ones(3)).tolist() == [4, 4, 4]


def test_a_decode_step_with_a_cache_goes_on_as_eager_does(mechanism: str) -> None:
    model = Decoder()
    token = torch.tensor([[5]])
    graph = capture(model.step, token, torch.tensor([0]), state=model.cache())
    assert not any(tensor.any() for tensor in model.cache())
    other = Decoder()
    other.load_state_dict(model.state_dict())
    ours = theirs = token
    for at in range(6):
        position = torch.tensor([at])
        graph.check(ours, position)
        ours = graph(ours, position).clone()
        theirs = other.step(theirs, position)
        assert torch.equal(ours, theirs)
    for mine, right in zip(model.cache(), other.cache(), strict=True):
        assert torch.equal(mine, right)


def test_views_of_results_and_writes_into_them_are_repeated(mechanism: str) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x + 1
        made[0].zero_()
        halves = torch.split(torch.relu(x @ x), 2)
        halves[1].add_(halves[0])
        return made.t(), torch.cat([half.sum(0) for half in halves])

    graph = capture(fn, torch.randn(4, 4))
    for _ in range(3):
        x = torch.randn(4, 4)
        for mine, right in zip(graph(x), fn(x), strict=True):
            assert torch.equal(mine, right)
            assert mine.stride() == right.stride()


def test_gradients_inside_are_captured() -> None:
    weight = torch.randn(4, 2, requires_grad=True)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = (x @ weight).square().mean()
        return loss, torch.autograd.grad(loss, weight)[0]

    graph = capture(step, torch.randn(3, 4))
    for _ in range(2):
        graph.check(torch.randn(3, 4))
    assert not graph(torch.randn(3, 4))[0].requires_grad


def test_random_numbers_are_new_in_each_replay_and_those_of_eager(mechanism: str) -> None:
    def fn(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) + torch.rand(8) + torch.empty(8).normal_()

    graph = capture(fn, torch.ones(8))
    torch.manual_seed(3)
    ours = [graph(torch.ones(8)).clone() for _ in range(3)]
    torch.manual_seed(3)
    theirs = [fn(torch.ones(8)) for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], ours[1])
    before = torch.get_rng_state()
    graph.check(torch.ones(8))
    assert torch.equal(before, torch.get_rng_state())


def test_our_own_operators_are_captured() -> None:
    graph = capture(lambda x: topk(x.softmax(-1), 3), torch.randn(2, 10))
    graph.check(torch.randn(2, 10))
    assert graph(torch.randn(2, 10)).indices.shape == (2, 3)


def test_memory_is_used_again_when_nobody_reads_it_any_more() -> None:
    x, y = torch.randn(64, 64), torch.rand(64, 64)
    graph = capture(chain, x, y)
    memory = graph.memory
    size = 64 * 64 * 4
    assert memory.inputs == 2 * size
    assert memory.outputs == size
    assert memory.asked == 64 * size
    # One that is written, one that is read, and the result.
    assert memory.planned is not None
    assert memory.planned <= 3 * size
    assert graph.launches == 64


_OUTSIDE = torch.zeros(3)


class _Marked(Tensor):
    pass


_REFUSED: dict[str, tuple[Callable[[Tensor], Any], str, str]] = {
    "item": (lambda x: x * x.sum().item(), "Tensor.item", "reads a tensor's value on the host"),
    "branch": (lambda x: x if x.sum() > 0 else -x, "Tensor.__bool__", "may depend on data"),
    "int": (lambda x: x[: int(x.sum())], "Tensor.__int__", "on the host"),
    "tolist": (lambda x: x.tolist(), "Tensor.tolist", "on the host"),
    "numpy": (lambda x: torch.from_numpy(x.numpy()), "Tensor.numpy", "on the host"),
    "equal": (lambda x: torch.equal(x, x), "aten.equal.default", "on the host"),
    "nonzero": (lambda x: x.nonzero(), "aten.nonzero.default", "depends on data"),
    "mask": (lambda x: x[x > 0], "aten.index.Tensor", "depends on data"),
    "unique": (lambda x: torch.unique(x), "aten._unique2.default", "depends on data"),
    "argument": (lambda x: x.add_(1), "aten.add_.Tensor", "changes an argument in place"),
    "outside": (lambda x: _OUTSIDE.add_(x), "aten.add_.Tensor", "listed in state="),
    "out": (lambda x: torch.add(x, 1, out=_OUTSIDE), "aten.add.out", "listed in state="),
    "resize": (lambda x: (x + 1).resize_(2), "Tensor.resize_", "memory, which a graph holds fixed"),
    "shape": (lambda x: (x + 1).unsqueeze_(0), "aten.unsqueeze_.default", "shape in place"),
    "address": (lambda x: x.data_ptr(), "Tensor.data_ptr", "hands an address out"),
    "subclass": (lambda x: x + _MARKED, "aten.add.Tensor", "given a _Marked"),
}
_MARKED = torch.ones(3).as_subclass(_Marked)


@pytest.mark.parametrize("name", _REFUSED)
def test_what_cannot_be_repeated_is_refused_by_name_and_line(name: str) -> None:
    fn, op, reason = _REFUSED[name]
    before = _OUTSIDE.clone()
    with pytest.raises(UncapturableError, match=re.escape(reason)) as caught:
        capture(fn, torch.ones(3), warmup=0)
    assert caught.value.op == op
    assert op in str(caught.value)
    assert caught.value.line == f"{__file__}:{fn.__code__.co_firstlineno}"
    assert torch.equal(_OUTSIDE, before)


def test_an_index_of_numbers_is_no_index_of_a_mask() -> None:
    graph = capture(lambda x, i: x[i], torch.randn(5), torch.tensor([1, 3]))
    graph.check(torch.randn(5), torch.tensor([4, 0]))


def test_a_shape_that_was_not_captured_is_refused_with_those_that_were() -> None:
    graph = capture(lambda x: x + 1, torch.zeros(2, 3), buckets=[(torch.zeros(4, 3),)])
    assert graph.buckets == (((2, 3),), ((4, 3),))
    assert graph(torch.ones(4, 3)).shape == (4, 3)
    for other in (torch.zeros(3, 3), torch.zeros(2, 3).double(), torch.zeros(2, 3, 1)):
        with pytest.raises(GraphBucketError, match=re.escape("((2, 3),) or ((4, 3),)")):
            graph(other)
    with pytest.raises(GraphBucketError, match=r"1 tensors and .* got 2 tensors and "):
        graph(torch.ones(4, 3), torch.ones(4, 3))


def test_what_is_no_tensor_must_be_what_it_was() -> None:
    graph = capture(lambda x, n, kind: x * n if kind == "a" else x, torch.ones(2), 3, "a")
    assert graph(torch.ones(2), 3, "a").tolist() == [3, 3]
    with pytest.raises(
        GraphBucketError, match=re.escape("1 tensors and (3, 'a'), got 1 tensors and (4, 'a')")
    ):
        graph(torch.ones(2), 4, "a")
    with pytest.raises(ValueError, match=re.escape("capture: buckets: expected tuples")):
        capture(lambda x, n: x * n, torch.ones(2), 3, buckets=[(torch.ones(3), 4)])


def test_gradients_that_are_left_behind_are_refused() -> None:
    weight = torch.ones(3, requires_grad=True)

    def step(x: Tensor) -> Tensor:
        weight.grad = None
        loss = (x * weight).sum()
        loss.backward()
        return loss

    for warmup in (0, 1):
        with pytest.raises(UncapturableError, match=re.escape("torch.autograd.grad")):
            capture(step, torch.ones(3), warmup=warmup)


@settings(max_examples=30)
@given(length=st.integers(1, 8))
def test_padding_changes_no_row_that_is_there(length: int) -> None:
    graph = _PADDED
    x = torch.randn(2, length, 3)
    found = graph(x, torch.ones(3))
    assert found.shape == (2, length, 3)
    torch.testing.assert_close(found, x.cumsum(1), rtol=0, atol=0)
    graph.check(x, torch.ones(3))


_PADDED = capture(
    lambda x, w: (x * w).cumsum(1),
    torch.zeros(2, 4, 3),
    torch.ones(3),
    buckets=[(torch.zeros(2, 8, 3), torch.ones(3))],
    padding=Padding({0: 1}, {0: 1}, value=float("nan")),
)


def test_what_no_padding_makes_fit_is_refused_with_the_rule() -> None:
    for given_x in (torch.zeros(2, 9, 3), torch.zeros(1, 4, 3), torch.zeros(2, 4)):
        with pytest.raises(GraphBucketError, match=re.escape("may be padded: {0: 1}")):
            _PADDED(given_x, torch.ones(3))


@pytest.mark.parametrize("length", [4, 3])
def test_an_argument_without_memory_is_refused(length: int) -> None:
    example = (torch.ones(4),)
    graph = capture(lambda x: x + 1, *example, padding=Padding({0: 0}, {0: 0}))
    x = torch.ones(length)
    x.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match=r"graph: argument.*: expected .* bytes of storage, got 0"):
        graph(x)
    with pytest.raises(ValueError, match=r"graph: argument.*: expected .* bytes of storage, got 0"):
        graph.check(x)


@pytest.mark.parametrize("padding", [None, Padding({0: 0}, {0: 0})])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(4, device="meta"), "graph: argument: expected values, .* meta device has none"),
        (torch.nested.nested_tensor([torch.ones(4)]), "graph: argument: .* got a nested tensor"),
    ],
    ids=["meta", "nested"],
)
def test_an_argument_without_values_or_sizes_is_refused(
    padding: Padding | None, x: torch.Tensor, message: str
) -> None:
    graph = capture(lambda x: x + 1, torch.ones(4), padding=padding)
    for call in (graph, graph.check):
        with pytest.raises(TypeError, match=message):
            call(x)


def test_a_replay_that_differs_is_told() -> None:
    counted = [0]

    def fn(x: Tensor) -> Tensor:
        counted[0] += 1
        return x + counted[0]

    graph = capture(fn, torch.zeros(2))
    with pytest.raises(GraphParityError, match="result 0 of the replay differs"):
        graph.check(torch.zeros(2))
    cache = torch.zeros(2)

    def writing(x: Tensor) -> Tensor:
        counted[0] += 1
        cache.copy_(x + counted[0])
        return x * 1

    graph = capture(writing, torch.zeros(2), state=[cache])
    with pytest.raises(GraphParityError, match="state 0 of the replay differs"):
        graph.check(torch.zeros(2))
    assert cache.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: capture(3), TypeError, "capture: fn: expected a function, got 3"),
        (
            lambda: capture(lambda x, y: x, torch.ones(1), torch.ones(1, device="meta")),
            ValueError,
            "capture: example: expected tensors of one device, got cpu, meta",
        ),
        (
            lambda: capture(lambda: None, state=["x"]),
            TypeError,
            "capture: state",
        ),
        (
            lambda: capture(lambda x: x, torch.ones(1), buckets=[torch.ones(2)]),
            TypeError,
            "capture: buckets",
        ),
        (
            lambda: capture(lambda x: x, torch.ones(1), padding={0: 0}),  # type: ignore[arg-type]
            TypeError,
            "capture: padding: expected Padding, got a dict",
        ),
        (
            lambda: capture(lambda: None, warmup=-1),
            ValueError,
            "capture: warmup: expected an int of 0 to 1000000, got -1",
        ),
        (
            lambda: capture(lambda x: torch.ones(1, device="meta"), torch.ones(1)),
            UncapturableError,
            "it lies on meta",
        ),
    ],
)
def test_arguments_of_capture_that_do_not_fit_are_named(
    call: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


def test_the_interpreters_optimiser_is_left_as_it_was() -> None:
    graph = capture(lambda x: x + 1, torch.zeros(1))
    for setting in (True, False):
        torch._C._set_graph_executor_optimize(setting)
        graph(torch.ones(1))
        assert torch._C._get_graph_executor_optimize() is setting
    torch._C._set_graph_executor_optimize(True)


def test_an_operator_that_returns_nothing_is_captured(mechanism: str) -> None:
    total, given = torch.zeros(3), torch.arange(3.0)

    def add(x: Tensor) -> Tensor:
        foreach_map_(lambda a, b: a * 0.5 + b, [total], [x])
        return total * 2

    graph = capture(add, given, state=(total,))
    for _ in range(3):
        expected = total * 0.5 + given
        assert torch.equal(graph(given), expected * 2)
        assert torch.equal(total, expected)
