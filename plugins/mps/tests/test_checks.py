"""Indices outside of their dimension are reported, and nothing outside is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import torchyard_mps
from plugins.mps.tests.emulated import emulated
from torchyard_mps import IndexRangeError
from torchyard_mps._checks._operators import CHECKS

_Program = Callable[[Tensor, Tensor], Any]


def _x() -> Tensor:
    return torch.arange(12.0).reshape(3, 4)


# Name -> (operator that reports, program of x [3, 4] and an index, good index, bad, what is said).
_PROGRAMS: Final[dict[str, tuple[str, _Program, Any, Any, str]]] = {
    "gather": ("gather", lambda x, i: x.gather(1, i), [[0, 3]], [[0, 4]], "0 to 3 .* got 4 at"),
    "gather, negative": ("gather", lambda x, i: x.gather(1, i), [[0]], [[-1]], "got -1 at"),
    "gather, by name": (
        "gather",
        lambda x, i: x.gather(index=i, dim=0),
        [[1, 0, 2, 0]],
        [[1, 0, 3, 0]],
        r"dimension 0 of size 3, got 3 at \[0, 2\]",
    ),
    "index_select": ("index_select", lambda x, i: x.index_select(0, i), [2], [3], "0 to 2"),
    "index_select of rows": (
        "index_select",
        lambda x, i: torch.index_select(x, -1, i),
        [3, 1],
        [3, 9],
        r"dimension -1 of size 4, got 9 at \[1\]",
    ),
    "index_copy_": (
        "index_copy_",
        lambda x, i: x.index_copy_(0, i, torch.ones(1, 4)),
        [2],
        [7],
        "got 7",
    ),
    "index_copy": (
        "index_copy",
        lambda x, i: x.index_copy(1, i, torch.ones(3, 2)),
        [0, 3],
        [0, 4],
        "got 4",
    ),
    "index_add_": (
        "index_add_",
        lambda x, i: x.index_add_(0, i, torch.ones(2, 4)),
        [0, 0],
        [0, 3],
        "got 3",
    ),
    "index_add": (
        "index_add",
        lambda x, i: torch.index_add(x, 1, i, torch.ones(3, 1), alpha=2),
        [3],
        [-1],
        "got -1",
    ),
    "index_fill_": ("index_fill_", lambda x, i: x.index_fill_(0, i, 5.0), [-3], [-4], "-3 to 2"),
    "index_fill by a tensor": (
        "index_fill",
        lambda x, i: x.index_fill(1, i, torch.tensor(5.0)),
        [3],
        [4],
        "-4 to 3",
    ),
    "index_reduce_": (
        "index_reduce_",
        lambda x, i: x.index_reduce_(0, i, torch.ones(1, 4), "amax"),
        [1],
        [3],
        "got 3",
    ),
    "scatter_ of values": (
        "scatter_",
        lambda x, i: x.scatter_(1, i, 9.0),
        [[3], [0], [1]],
        [[3], [4], [1]],
        r"got 4 at \[1, 0\]",
    ),
    "scatter of tensors": (
        "scatter",
        lambda x, i: x.scatter(0, i, torch.ones(1, 4)),
        [[0, 1, 2, 2]],
        [[0, 1, 2, 3]],
        r"got 3 at \[0, 3\]",
    ),
    "scatter with a reduction": (
        "scatter_",
        lambda x, i: x.scatter_(0, i, torch.ones(1, 4), reduce="add"),
        [[0, 1, 2, 2]],
        [[5, 1, 2, 3]],
        "2 of 4 indices are outside",
    ),
    "scatter_add_": (
        "scatter_add_",
        lambda x, i: x.scatter_add_(1, i, torch.ones(3, 1)),
        [[1], [1], [1]],
        [[1], [1], [99]],
        "got 99",
    ),
    "scatter_add": (
        "scatter_add",
        lambda x, i: torch.scatter_add(x, 1, i, torch.ones(1, 1)),
        [[1]],
        [[-7]],
        "got -7",
    ),
    "scatter_reduce_": (
        "scatter_reduce_",
        lambda x, i: x.scatter_reduce_(0, i, torch.ones(1, 4), "mean"),
        [[2, 2, 2, 2]],
        [[2, 2, 2, 4]],
        "got 4",
    ),
    "take": ("take", lambda x, i: x.take(i), [11, -12], [12], "all elements of size 12, got 12"),
    "put_": (
        "put_",
        lambda x, i: x.put_(i, torch.ones(2)),
        [-12, 11],
        [-13, 11],
        "-12 to 11 .* got -13",
    ),
    "reading by a list": ("index", lambda x, i: x[i], [2, -3], [2, -4], "-3 to 2 .* got -4"),
    "reading by two lists": (
        "index",
        lambda x, i: x[torch.tensor([0, 1]), i],
        [3, -4],
        [3, 4],
        "dimension 1 of size 4, got 4",
    ),
    "reading after a slice": ("index", lambda x, i: x[:, i], [[3]], [[5]], "dimension 1"),
    "reading after a mask": (
        "index",
        lambda x, i: x.reshape(3, 2, 2)[torch.ones(3, 2, dtype=torch.bool), i],
        [1],
        [2],
        "dimension 2 of size 2",
    ),
    "writing by a list": (
        # From torch 2.15 on, one number is written by index_fill_.
        "index_(put|fill)_",
        lambda x, i: x.__setitem__(i, 4.0),
        [0],
        [3],
        "dimension 0",
    ),
    "writing a column": (
        "index_put_",
        lambda x, i: x.__setitem__((slice(None), i), torch.ones(3, 1)),
        [-1],
        [-5],
        "got -5",
    ),
    "index_put, accumulated": (
        "index_put",
        lambda x, i: torch.index_put(x, (i,), torch.tensor(1.0), accumulate=True),
        [1, 1],
        [1, 8],
        "got 8",
    ),
    "embedding": (
        "embedding",
        lambda x, i: functional.embedding(i, x),
        [[0, 2]],
        [[0, 3]],
        r"the rows of size 3, got 3 at \[0, 1\]",
    ),
    "a layer of embeddings": (
        "embedding",
        lambda x, i: nn.Embedding.from_pretrained(x)(i),
        [1],
        [50257],
        "got 50257",
    ),
    "a bag of embeddings": (
        "_embedding_bag_forward_only",
        lambda x, i: functional.embedding_bag(i, x),
        [[0, 2]],
        [[0, 3]],
        r"the rows of size 3, got 3 at \[1\]",
    ),
    "a bag of embeddings with gradients": (
        "_embedding_bag",
        lambda x, i: functional.embedding_bag(i, x.requires_grad_()),
        [[0, 2]],
        [[-1, 2]],
        "got -1",
    ),
    "embeddings of bounded norm": (
        "embedding_renorm_",
        lambda x, i: functional.embedding(i, x, max_norm=1.0),
        [2],
        [3],
        "the rows of size 3, got 3",
    ),
    "unpooling": (
        "max_unpool2d",
        lambda x, i: functional.max_unpool2d(x[None, :2, :2], i, 2),
        [[[0, 2], [8, 15]]],
        [[[0, 2], [8, 16]]],
        r"0 to 15 in an image of the output of size 16, got 16 at \[0, 1, 1\]",
    ),
    "int32 indices": (
        "embedding",
        lambda x, i: functional.embedding(i.int(), x),
        [1],
        [-1],
        "got -1",
    ),
    "an empty dimension": (
        "index_select",
        lambda x, i: x[:0].index_select(0, i),
        [],
        [0],
        "of size 0, got 0",
    ),
}


def _index(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_an_index_outside_is_reported_with_operator_and_place(name: str) -> None:
    operator, program, _, bad, text = _PROGRAMS[name]
    message = f"(?s)^{operator}: index: expected .*{text}"
    with (
        emulated(address_sanitizer=True),
        pytest.raises(IndexRangeError, match=message) as caught,
        torchyard_mps.checked(),
    ):
        program(_x(), _index(bad))
    assert __file__ in str(caught.value)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_indices_inside_give_what_they_give_unchecked(name: str) -> None:
    _, program, good, _, _ = _PROGRAMS[name]
    plain, watched = _x(), _x()
    expected = program(plain, _index(good))
    with emulated(), torchyard_mps.checked():
        found = program(watched, _index(good))
    assert torch.equal(plain, watched)
    if isinstance(expected, Tensor):
        assert torch.equal(found, expected)


def test_every_operator_of_the_table_is_one_of_torch() -> None:
    assert not [name for name in CHECKS if not hasattr(torch.ops.aten, name)]
    assert len(_PROGRAMS) >= 30


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(indices=st.lists(st.integers(-9, 9), min_size=1, max_size=40))
def test_what_is_reported_is_the_first_outside_and_how_many_are(indices: list[int]) -> None:
    outside = [(at, one) for at, one in enumerate(indices) if not -3 <= one < 3]
    text = ""
    with emulated():
        try:
            with torchyard_mps.checked():
                _x()[torch.tensor(indices)]
        except IndexRangeError as error:
            text = str(error)
    assert bool(text) == bool(outside)
    if outside:
        assert f"got {outside[0][1]} at [{outside[0][0]}]" in text
        assert (f"{len(outside)} of {len(indices)} indices" in text) == (len(outside) > 1)


def test_a_write_outside_changes_no_memory_outside() -> None:
    whole = torch.zeros(6, 4)
    inner = whole[1:4]
    with emulated(), pytest.raises(IndexRangeError), torchyard_mps.checked():
        inner.index_copy_(0, torch.tensor([4]), torch.ones(1, 4))
    assert not whole[:1].any()
    assert not whole[4:].any()


_BAD: Final = torch.tensor([5])


def _at_once(reached: list[str]) -> None:
    with torchyard_mps.checked(), torchyard_mps.errors(sync=True):
        _x().index_select(0, _BAD)
        reached.append("what follows the call")


def _at_a_synchronisation(reached: list[str]) -> None:
    with torchyard_mps.checked():
        _x().index_select(0, _BAD)
        reached.append("what follows the call")
        torchyard_mps.synchronize()
        reached.append("what follows the synchronisation")


def _at_a_number(reached: list[str]) -> None:
    with torchyard_mps.checked():
        found = _x().index_select(0, _BAD).sum()
        reached.append("what follows the call")
        found.item()
        reached.append("what follows the number")


def _at_the_end(reached: list[str]) -> None:
    with torchyard_mps.checked():
        _x().index_select(0, _BAD)
        reached.append("what follows the call")
    reached.append("what follows the block")


def _late_inside_of_at_once(reached: list[str]) -> None:
    with torchyard_mps.errors(sync=True), torchyard_mps.errors(sync=False):
        with torchyard_mps.checked():
            _x().index_select(0, _BAD)
            reached.append("what follows the call")
        reached.append("what follows the block")


@pytest.mark.parametrize(
    ("program", "reached"),
    [
        (_at_once, []),
        (_at_a_synchronisation, ["what follows the call"]),
        (_at_a_number, ["what follows the call"]),
        (_at_the_end, ["what follows the call"]),
        (_late_inside_of_at_once, ["what follows the call"]),
    ],
)
def test_when_a_fault_is_raised(program: Callable[[list[str]], None], reached: list[str]) -> None:
    seen: list[str] = []
    with emulated(), pytest.raises(IndexRangeError):
        program(seen)
    assert seen == reached
    torchyard_mps.synchronize()


def _seven_calls() -> None:
    with torchyard_mps.checked():
        for _ in range(7):
            _x().index_select(0, _BAD)


def test_several_calls_are_reported_together_and_once() -> None:
    with emulated(), pytest.raises(IndexRangeError) as caught:
        _seven_calls()
    torchyard_mps.synchronize()
    lines = str(caught.value).splitlines()
    assert len(lines) == 6
    assert lines[-1] == "and 2 more calls"


def test_gradients_are_checked_as_well() -> None:
    weight, index = torch.randn(3, 4, requires_grad=True), torch.tensor([1, 2, 1])
    with emulated(), torchyard_mps.checked():
        functional.embedding(index, weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.sum(1).tolist() == [0.0, 8.0, 4.0]


def _fails_for_another_reason() -> None:
    with torchyard_mps.checked():
        _x().index_select(0, _BAD)
        raise ZeroDivisionError


def test_an_error_of_the_block_is_not_hidden() -> None:
    with emulated(), pytest.raises(ZeroDivisionError):
        _fails_for_another_reason()
    with pytest.raises(IndexRangeError):
        torchyard_mps.synchronize()


def test_bad_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="errors: sync: expected"), torchyard_mps.errors(sync=1):  # type: ignore[arg-type]
        pass
