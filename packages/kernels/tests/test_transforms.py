"""Every op under every transform of torch: right, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jvp, vmap

import torchyard_attention
import torchyard_kernels as tk
from torchyard import TransformError
from torchyard_kernels._operators import OPERATORS
from torchyard_programs import trace

from .transforms import GRU, LENGTHS, LSTM, OPS, TRANSFORMS, Op, draw

PAGE = Path(__file__).parents[3] / "docs" / "transforms.md"


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_transform_of_an_op_is_that_of_its_meaning(op: Op, transform: str) -> None:
    x = draw(3, 4).to(op.dtype)
    apply = TRANSFORMS[transform]
    torch.testing.assert_close(apply(op.ours, x), apply(op.right, x))


CHECKED = {
    "linear": (tk.linear, [(2, 3, 4), (5, 4), (5,)]),
    "linear, functions": (
        lambda x, w: tk.linear(x, w, prologue=torch.sin, epilogue=lambda a, b: a * torch.tanh(b)),
        [(2, 4), (6, 4)],
    ),
    "matmul": (tk.matmul, [(2, 1, 3, 4), (2, 4, 2)]),
    "bmm": (tk.bmm, [(2, 3, 4), (2, 4, 2)]),
    "topk": (lambda x: tk.topk(x, 2, 0).values, [(4, 3)]),
    "masked_topk": (
        lambda x: tk.masked_topk(x, torch.tensor([True, False, True]), 3).values[..., :2],
        [(2, 3)],
    ),
    "segmented_topk": (
        lambda x: tk.segmented_topk(x, torch.tensor([0, 2, 7]), 2).values,
        [(7,)],
    ),
    "foreach_map": (
        lambda a, b, c: tuple(tk.foreach_map(lambda p, q: torch.tanh(p) * q + c, [a, b], [b, a])),
        [(3,), (2, 3), (3,)],
    ),
    "gru": (
        lambda x, h, *w: tuple(tk.gru(x, h, w, lengths=LENGTHS[:2])),
        [(3, 2, 4), (1, 2, 3), *[w.shape for w in GRU]],
    ),
    "lstm": (
        lambda x, h, c, *w: tk.lstm(x, (h, c), w)[0],
        [(2, 2, 4), (1, 2, 3), (1, 2, 3), *[w.shape for w in LSTM]],
    ),
}


@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck_in_both_modes_and_of_batches(name: str) -> None:
    function, shapes = CHECKED[name]
    given = [(draw(*shape) / 2).requires_grad_() for shape in shapes]
    assert gradcheck(
        function,
        given,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=True,
    )
    assert gradgradcheck(
        function, given, check_batched_grad=True, check_fwd_over_rev=True, fast_mode=True
    )


TANH, _ = trace(torch.tanh, "tanh", (("x0", None),), torch.device("cpu"))
PROLOGUE, _ = trace(torch.tanh, "tanh", (("x", None),), torch.device("cpu"))
OPCHECKED = {
    "linear": (lambda x, w: (x, [w], "", None), [(3, 4), (5, 4)]),
    "linear_fused": (
        lambda x, w: (x.detach(), [w.detach()], "", None, PROLOGUE, [], "", None, False),
        [(3, 4), (5, 4)],
    ),
    "topk": (lambda x: (x, None, 2, 1, True, "sorted"), [(3, 4)]),
    "segmented_topk": (
        lambda x: (x, torch.tensor([0, 2, 6]), 2, True, "sorted"),
        [(6,)],
    ),
    "pointwise": (
        lambda x: ([x], None, None, "T", 1, TANH, ""),
        [(3, 4)],
    ),
    "pointwise_": (
        lambda x: ([x.detach().clone()], [x.detach()], None, None, "T", 1, TANH, ""),
        [(3, 4)],
    ),
    "recurrent": (
        lambda x, h, *w: (x, h, None, list(w), None, "gru", 1, False, True, ""),
        [(3, 2, 4), (1, 2, 3), *[w.shape for w in GRU]],
    ),
    "recurrent_backward": (
        lambda *tensors: _backward_arguments(*(x.detach() for x in tensors)),
        [(3, 2, 4), (1, 2, 3), *[w.shape for w in GRU]],
    ),
}


def _backward_arguments(x: Tensor, h: Tensor, *w: Tensor) -> tuple[Any, ...]:
    given = x, h, None, list(w), None, "gru", 1, False
    found = OPERATORS["recurrent"](*given, True, "")
    output, hidden, reserve = found[0], found[1], found[-1]
    return *given, reserve, torch.ones_like(output), torch.ones_like(hidden), None


@pytest.mark.parametrize("name", OPCHECKED)
def test_an_op_keeps_what_torch_expects_of_one(name: str) -> None:
    arguments, shapes = OPCHECKED[name]
    given = [draw(*shape).requires_grad_() for shape in shapes]
    found = torch.library.opcheck(
        getattr(torch.ops.torchyard_kernels, name).default, arguments(*given)
    )
    assert set(found.values()) == {"SUCCESS"}


def test_every_op_is_among_them() -> None:
    assert set(OPERATORS._calls) == set(OPCHECKED)


def test_an_op_called_by_its_own_name_keeps_its_tangent() -> None:
    op = torch.ops.torchyard_kernels.linear.default
    x, w = draw(3, 4), draw(5, 4)
    _, tangent = jvp(lambda v: op(v, [w], "", None), (x,), (x,))
    torch.testing.assert_close(tangent, x @ w.T)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_layers_with_weights_of_their_own_are_mapped_over(kind: str) -> None:
    flat = GRU if kind == "gru" else LSTM
    stacks = [torch.stack([w, -w]) for w in flat]
    x = draw(3, 2, 4)

    def run(*weights: torch.Tensor) -> torch.Tensor:
        return getattr(tk, kind)(x, None, weights)[0]

    right = torch.stack([run(*[stack[at] for stack in stacks]) for at in range(2)])
    torch.testing.assert_close(vmap(run)(*stacks), right)
    gradients = vmap(grad(lambda *w: run(*w).sin().sum()))(*stacks)
    alone = grad(lambda w, *rest: run(w, *rest).sin().sum())(*[stack[1] for stack in stacks])
    torch.testing.assert_close(gradients[1], alone)


def test_lengths_are_mapped_over() -> None:
    x, lengths = draw(2, 3, 2, 4), torch.tensor([[1, 3], [2, 2]])
    found = vmap(lambda v, n: tk.gru(v, None, GRU, lengths=n)[0])(x, lengths)
    right = [tk.gru(v, None, GRU, lengths=n)[0] for v, n in zip(x, lengths, strict=True)]
    torch.testing.assert_close(found, torch.stack(right))


@pytest.mark.parametrize(
    "shapes",
    [((3,), (2, 3)), ((2, 3), (3,)), ((), (3,)), ((2, 1), (3,))],
    ids=str,
)
@pytest.mark.parametrize("mapped", [(0, 0), (0, None), (None, 0), (-1, 0)], ids=str)
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.float32, torch.float16)])
def test_groups_of_any_ranks_are_mapped_over(shapes, mapped, dtypes) -> None:
    given = []
    for shape, dim, dtype in zip(shapes, mapped, dtypes, strict=True):
        tensor = draw(*shape, 4) if shape else draw(4)
        tensor = tensor.to(dtype)
        given.append(tensor.select(-1, 0) if dim is None else tensor.movedim(-1, dim))

    def function(a, b):
        return tuple(tk.foreach_map(lambda p, q: p * q + 1, [a, a], [b, b[None]]))

    def right(a, b):
        return a * b + 1, a * b[None] + 1

    torch.testing.assert_close(
        vmap(function, mapped)(*given), vmap(right, mapped)(*given), rtol=1e-3, atol=1e-3
    )


def test_captured_tensors_are_mapped_over_where_elements_are_looked_up() -> None:
    table, places = draw(3, 5), torch.tensor([0, 4, 2, 2, 1])

    def function(row):
        return tk.foreach_map(lambda at: row[at], [places])[0]

    torch.testing.assert_close(vmap(function)(table), table[:, places])
    torch.testing.assert_close(
        vmap(lambda row: tk.foreach_map(lambda p: p * row, [table])[0])(table),
        table * table[:, None],
    )


def test_a_packed_weight_that_is_mapped_over_is_refused() -> None:
    op = torch.ops.torchyard_kernels.linear.default
    packed = tk.PackedWeight(draw(6, 4).float())
    data = torch.stack([packed.tensors[0]] * 2)
    with pytest.raises(TransformError, match=r"linear under torch\.vmap: expected a packed weight"):
        vmap(lambda d: op(torch.zeros(2, 4), [d], packed.spec_text, None))(data)


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "dual_level"])
def test_writing_is_refused_by_name_and_changes_nothing(transform: str) -> None:
    x = draw(3, 4)
    before = x.clone()

    def write(value):
        tk.foreach_map_(lambda p: p * 2, [value])
        return value

    refusals = (TransformError, tk.InPlaceGradientError)
    with pytest.raises(refusals, match=r"^foreach_map_\b.*use foreach_map$"):
        TRANSFORMS[transform](write, x)
    assert torch.equal(x, before)


def test_the_documents_table_names_each_op_and_transform() -> None:
    text = PAGE.read_text()
    rows = set(re.findall(r"^\| `(\w+)`", text, flags=re.MULTILINE))
    tried = {re.split(r"\W", op.name)[0] for op in OPS}
    # Of attention's functions, its own tests try the transforms; foreach_map_ refuses them all.
    assert rows - {"foreach_map_"} - set(torchyard_attention.__all__) == tried
    for transform in TRANSFORMS:
        assert f"`{transform}`" in text or transform in text, transform
