"""What ``topk`` and its relatives return, refuse and differentiate."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from torchyard_kernels import TopK, kthvalue, masked_topk, partial_sort, segmented_topk, topk
from torchyard_kernels.topk.contract import DEFINITIONS, TOPK, TopKRequest

from .cases import rows

OFFSETS = torch.tensor([0, 0, 3, 12])


@settings(max_examples=60)
@given(data=st.data())
def test_values_are_those_of_torch(data: st.DataObject) -> None:
    x = data.draw(rows((3, 7, 5)))
    dim = data.draw(st.integers(-3, 2))
    k = data.draw(st.integers(0, x.shape[dim]))
    largest = data.draw(st.booleans())
    found = topk(x, k, dim, largest)
    expected = torch.topk(x, k, dim, largest)
    torch.testing.assert_close(found.values, expected.values, rtol=0, atol=0, equal_nan=True)
    assert found.indices.dtype == torch.int64
    assert found.values.is_contiguous()
    torch.testing.assert_close(x.gather(dim, found.indices), found.values, equal_nan=True)


def test_equal_elements_stand_by_their_indices() -> None:
    x = torch.tensor([2, 3, 3, 1, 3, 2])
    assert topk(x, 4).indices.tolist() == [1, 2, 4, 0]
    assert topk(x, 4, largest=False).indices.tolist() == [3, 0, 5, 1]
    assert topk(x, 4, sorted=False).indices.tolist() == [0, 1, 2, 4]


def test_a_partial_sort_is_the_beginning_of_the_stable_sort() -> None:
    x = torch.randint(0, 5, (4, 30))
    for descending in (False, True):
        whole = torch.sort(x, descending=descending, stable=True)
        found = partial_sort(x, 11, descending=descending)
        assert torch.equal(found.values, whole.values[:, :11])
        assert torch.equal(found.indices, whole.indices[:, :11])


def test_the_kth_value_is_that_of_the_stable_sort() -> None:
    x = torch.randint(0, 5, (4, 30, 2)).float()
    whole = torch.sort(x, dim=1, stable=True)
    for k in (1, 7, 30):
        found = kthvalue(x, k, dim=1)
        assert torch.equal(found.values, torch.kthvalue(x, k, dim=1).values)
        assert torch.equal(found.indices, whole.indices[:, k - 1])
        assert kthvalue(x, k, dim=1, keepdim=True).indices.shape == (4, 1, 2)


def test_empty_tensors_and_k_of_zero_have_torchs_shapes() -> None:
    for shape, dim in (((0, 4), 1), ((4, 0, 3), 1), ((2, 3), 0)):
        x = torch.randn(shape)
        ours, theirs = topk(x, 0, dim), torch.topk(x, 0, dim)
        assert ours.values.shape == theirs.values.shape == ours.indices.shape
    assert topk(torch.randn(0, 4), 3).indices.shape == (0, 3)
    assert topk(torch.randn(4, 0, 3), 2, dim=2).values.shape == (4, 0, 2)
    assert topk(torch.tensor(3.0), 1) == (3.0, 0)
    assert kthvalue(torch.tensor(3.0), 1) == (3.0, 0)


def test_a_mask_broadcasts_and_leaves_places_empty() -> None:
    x = torch.tensor([[1.0, 5.0, 3.0], [9.0, 2.0, 7.0]])
    found = masked_topk(x, torch.tensor([True, False, True]), 3)
    assert found.values.tolist() == [[3.0, 1.0, float("-inf")], [9.0, 7.0, float("-inf")]]
    assert found.indices.tolist() == [[2, 0, -1], [0, 2, -1]]
    least = masked_topk(x.to(torch.int8), x > 4, 2, dim=0, largest=False)
    assert least.values.tolist() == [[9, 5, 7], [127, 127, 127]]
    assert least.indices.tolist() == [[1, 0, 1], [-1, -1, -1]]


def test_segments_have_positions_of_the_whole() -> None:
    x = torch.tensor([4.0, 1.0, 2.0, 8.0, 8.0])
    found = segmented_topk(x, torch.tensor([1, 1, 3, 5]), 2)
    assert found.indices.tolist() == [[-1, -1], [2, 1], [3, 4]]
    assert found.values[1:].tolist() == [[2.0, 1.0], [8.0, 8.0]]
    assert segmented_topk(x, torch.tensor([0]), 2).values.shape == (0, 2)


_REFUSED: list[tuple[Callable[[Tensor], Any], type[Exception], str]] = [
    (lambda x: topk([1.0], 1), TypeError, "topk: x: expected a dense tensor, got a list"),
    (lambda x: topk(x > 0, 1), TypeError, "topk: x: expected one of float32, float64"),
    (lambda x: topk(x.to(torch.complex64), 1), TypeError, "got complex64; cast x"),
    (lambda x: topk(x, 5), ValueError, "topk: k: expected 0 to 4, the row's length, got 5"),
    (lambda x: topk(x, -1), ValueError, "topk: k: expected 0 to 4, the row's length, got -1"),
    (lambda x: topk(x, 1.0), TypeError, "topk: k: expected an int of at most 2147483647, got 1.0"),
    (
        lambda x: topk(x, True),
        TypeError,
        "topk: k: expected an int of at most 2147483647, got True",
    ),
    (lambda x: topk(x, 1, 2), IndexError, "topk: dim: expected -2 to 1, got 2"),
    (lambda x: topk(x, 1, None), TypeError, "topk: dim: expected an int, got None"),
    (lambda x: kthvalue(x, 0), ValueError, "kthvalue: k: expected 1 to 4, the row's length, got 0"),
    (lambda x: masked_topk(x, x, 1), TypeError, "masked_topk: mask: expected bool, got"),
    (
        lambda x: masked_topk(x, torch.ones(3, 3, dtype=torch.bool), 1),
        ValueError,
        "masked_topk: mask: expected a shape that broadcasts to x's (3, 4), got (3, 3)",
    ),
    (
        lambda x: segmented_topk(x, OFFSETS, 1),
        ValueError,
        "segmented_topk: x: expected one dimension that holds all segments, got (3, 4)",
    ),
    (
        lambda x: segmented_topk(x.flatten(), OFFSETS.int(), 1),
        TypeError,
        "segmented_topk: offsets: expected int64, got torch.int32",
    ),
    (
        lambda x: segmented_topk(x.flatten(), OFFSETS[None], 1),
        ValueError,
        "segmented_topk: offsets: expected [segments + 1], got (1, 4)",
    ),
    (
        lambda x: segmented_topk(x.flatten(), torch.tensor([0, 13]), 1),
        ValueError,
        "segmented_topk: offsets: expected rising numbers from 0 to 12, got [0, 13]",
    ),
    (
        lambda x: segmented_topk(x.flatten(), torch.tensor([4, 3]), 1),
        ValueError,
        "offsets: expected rising numbers from 0 to 12, got [4, 3]",
    ),
    (
        lambda x: masked_topk(x, (x > 0).to("meta"), 1),
        ValueError,
        "masked_topk: mask: expected it on cpu, as x, got meta; move it there",
    ),
    (
        lambda x: segmented_topk(x.flatten(), OFFSETS.to("meta"), 1),
        ValueError,
        "segmented_topk: offsets: expected them on cpu, as x, got meta",
    ),
]


@pytest.mark.parametrize(
    ("call", "error", "text"), _REFUSED, ids=[text[:60] for *_, text in _REFUSED]
)
def test_what_does_not_fit_is_named(
    call: Callable[[Tensor], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call(torch.randn(3, 4))


_SELECTIONS: dict[str, Callable[[Tensor], TopK]] = {
    "topk": lambda x: topk(x, 3),
    "least": lambda x: topk(x, 2, dim=0, largest=False, sorted=False),
    "partial_sort": lambda x: partial_sort(x, 3),
    "kthvalue": lambda x: kthvalue(x, 2),
    "masked_topk": lambda x: masked_topk(x, torch.tensor([True, False, True, True]), 4),
    "segmented_topk": lambda x: segmented_topk(x.flatten(), OFFSETS.to(x.device), 4),
    "nothing": lambda x: topk(x, 0),
}
each = pytest.mark.parametrize("select", _SELECTIONS.values(), ids=_SELECTIONS)


def _distinct(shape: tuple[int, ...] = (3, 4)) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.randperm(count).double().div(count).reshape(shape).requires_grad_()


def _finite(select: Callable[[Tensor], TopK]) -> Callable[[Tensor], Tensor]:
    """Return the values that are elements: of the others no difference can be taken."""

    def values(x: Tensor) -> Tensor:
        found = select(x)
        return found.values[found.indices >= 0]

    return values


@each
def test_gradients_go_to_the_selected_elements(select: Callable[[Tensor], TopK]) -> None:
    x = _distinct()
    values = _finite(select)
    if values(x).numel():
        assert torch.autograd.gradcheck(values, (x,))
        assert torch.autograd.gradgradcheck(lambda x: values(x).sin(), (x,))
    (grad,) = torch.autograd.grad(select(x).values.sum(), x, allow_unused=True)
    assert grad is None or grad.isfinite().all()
    assert not select(x).indices.requires_grad


@each
def test_it_compiles_whole(select: Callable[[Tensor], TopK]) -> None:
    torch.compiler.reset()
    compiled = torch.compile(select, fullgraph=True, backend="aot_eager")
    x = _distinct()
    torch.testing.assert_close(compiled(x), select(x))
    if select(x).values.numel():
        (ours,) = torch.autograd.grad(compiled(x).values[..., :1].sum(), x)
        (eager,) = torch.autograd.grad(select(x).values[..., :1].sum(), x)
        torch.testing.assert_close(ours, eager)


def test_it_is_exported_with_a_dynamic_length() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> TopK:
            return topk(x, 3)

    length = torch.export.Dim("length", min=4, max=100)
    program = torch.export.export(Model(), (torch.randn(2, 8),), dynamic_shapes={"x": {1: length}})
    x = torch.randn(2, 31)
    torch.testing.assert_close(program.module()(x), topk(x, 3))
    assert "torchyard_kernels.topk" in program.graph_module.code


@pytest.mark.parametrize("masked", [False, True])
def test_opcheck_passes(masked: bool) -> None:
    x = torch.randn(3, 8, 2, requires_grad=True)
    mask = x.detach() > -1 if masked else None
    torch.library.opcheck(torch.ops.torchyard_kernels.topk.default, (x, mask, 2, 1, True, "sorted"))


def test_opcheck_passes_for_segments() -> None:
    x = torch.randn(12, requires_grad=True)
    torch.library.opcheck(
        torch.ops.torchyard_kernels.segmented_topk.default, (x, OFFSETS, 2, True, "last")
    )


def test_fake_tensors_have_the_shapes_of_real_ones() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for select in _SELECTIONS.values():
            real = torch.randn(3, 4)
            fake = select(mode.from_tensor(real, static_shapes=True))
            with torch.utils._python_dispatch._disable_current_modes():
                found = select(real)
            for mine, right in zip(fake, found, strict=True):
                assert (mine.shape, mine.dtype, mine.stride()) == (
                    right.shape,
                    right.dtype,
                    right.stride(),
                )


def test_vmap_selects_of_each() -> None:
    x = torch.randn(5, 3, 4)
    for select in (_SELECTIONS["topk"], _SELECTIONS["least"], _SELECTIONS["masked_topk"]):
        found = torch.vmap(select, in_dims=1)(x)
        each_one = [select(x[:, at]) for at in range(3)]
        torch.testing.assert_close(found.values, torch.stack([one.values for one in each_one]))
        torch.testing.assert_close(found.indices, torch.stack([one.indices for one in each_one]))
    segments = torch.vmap(lambda row: segmented_topk(row, OFFSETS, 2))(torch.randn(2, 12))
    assert segments.indices.shape == (2, 3, 2)


def test_a_request_is_parsed_from_text() -> None:
    definition = DEFINITIONS[TOPK]
    parsed = definition.request(
        {"dtype": "bfloat16", "shape": "3,50257", "k": "50", "masked": "yes"}
    )
    assert parsed == TopKRequest("cpu", "bfloat16", 3, 65536, 64, masked=True)
    assert parsed.bucket() == "cpu bfloat16 3x65536 k64 largest sorted masked"
    for field, value in (("shape", "3"), ("k", "x"), ("order", "best"), ("masked", "maybe")):
        with pytest.raises(ValueError, match=f"{field}: expected"):
            definition.request({field: value})
    with pytest.raises(ValueError, match="topk/1 has no field size; its fields:\n  device: "):
        definition.request({"size": "3"})
    assert {request.device for request in definition.cases("xpu")} == {"xpu"}
