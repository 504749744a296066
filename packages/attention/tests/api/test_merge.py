"""merge_states: attention over parts of the keys, put together."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from torchyard_attention import AuxRequest, flex_attention, merge_states


def state(
    query: Tensor, key: Tensor, value: Tensor, keys: slice = slice(None)
) -> tuple[Tensor, Tensor]:
    out, aux = flex_attention(
        query,
        key[:, :, keys],
        value[:, :, keys],
        return_aux=AuxRequest(lse=True),
        implementation="attention.reference",
    )
    return out, aux.lse


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cuts", [(0, 50), (0, 1, 50), (0, 0, 49, 50, 50), (0, 7, 20, 21, 50)])
def test_a_split_anywhere_is_the_whole(cuts: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 3, 50, 8, dtype=dtype)
    whole = state(query, key, value)
    pairs = itertools.pairwise(cuts)
    parts = [state(query, key, value, slice(*pair)) for pair in pairs]
    merged = merge_states([out for out, _ in parts], [lse for _, lse in parts])

    torch.testing.assert_close(merged, whole, rtol=8 * torch.finfo(dtype).eps, atol=1e-6)
    if dtype == torch.float64:
        torch.testing.assert_close(merged, whole, rtol=1e-13, atol=1e-13)


def test_the_grouping_of_parts_does_not_matter() -> None:
    torch.manual_seed(0)
    outs = torch.randn(4, 5, 6, dtype=torch.float64)
    lses = 30 * torch.randn(4, 5, dtype=torch.float64)
    at_once = merge_states(outs, lses)
    left = merge_states(outs[:2], lses[:2])
    right = merge_states(outs[2:], lses[2:])
    grouped = merge_states([left[0], right[0]], [left[1], right[1]])

    torch.testing.assert_close(grouped, at_once, rtol=1e-14, atol=1e-14)


def test_rows_that_no_part_sees_stay_empty() -> None:
    out, lse = merge_states(torch.zeros(3, 4, 2), torch.full((3, 4), -math.inf))

    assert torch.equal(out, torch.zeros(4, 2))
    assert torch.equal(lse, torch.full((4,), -math.inf))


def test_an_empty_part_changes_nothing_whatever_it_holds() -> None:
    outs = [torch.randn(4, 2), torch.full((4, 2), math.nan)]
    lses = [torch.randn(4), torch.full((4,), -math.inf)]
    out, lse = merge_states(outs, lses)

    assert torch.equal(out, outs[0])
    torch.testing.assert_close(lse, lses[0])


def test_large_scores_do_not_overflow() -> None:
    out, lse = merge_states(torch.tensor([[1.0], [3.0]]), torch.tensor([1e4, 1e4]))

    assert out.item() == 2.0
    assert lse.item() == pytest.approx(1e4 + math.log(2))


def test_low_precision_outputs_are_rounded_once() -> None:
    torch.manual_seed(0)
    outs, lses = torch.randn(5, 9, 7).bfloat16(), torch.randn(5, 9)
    out, _ = merge_states(outs, lses)

    assert out.dtype == torch.bfloat16
    assert torch.equal(out, merge_states(outs.float(), lses)[0].bfloat16())


@pytest.mark.parametrize("empty", [False, True])
def test_gradients_are_those_of_finite_differences(empty: bool) -> None:
    torch.manual_seed(0)
    outs = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    lses = torch.randn(3, 4, dtype=torch.float64)
    # Finite differences of -inf are NaN, so the empty parts are put in behind the leaf.
    hidden = torch.zeros(3, 4, dtype=torch.bool)
    if empty:
        hidden[1, :2] = hidden[:, 3] = True
    seen = (~hidden).any(dim=0)

    def merged(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = merge_states(outs, lses.masked_fill(hidden, -math.inf))
        return out, lse[seen]

    assert torch.autograd.gradcheck(merged, (outs, lses.requires_grad_()))


def test_it_compiles_to_one_graph() -> None:
    outs, lses = torch.randn(2, 4, 2), torch.randn(2, 4)
    compiled = torch.compile(merge_states, fullgraph=True, backend="aot_eager")

    torch.testing.assert_close(compiled(outs, lses), merge_states(outs, lses))
    torch.testing.assert_close(compiled(list(outs), list(lses)), merge_states(outs, lses))


@pytest.mark.parametrize(
    ("outs", "lses", "text"),
    [
        ([], [], "outs: expected at least one part, got none"),
        (torch.zeros(0, 2), torch.zeros(0), "outs: expected at least one part"),
        ([torch.zeros(2, 3), torch.zeros(2, 4)], torch.zeros(2, 2), r"outs\[1\]: expected \[2, 3"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 4), r"lses: expected shape \[2, 3\].*got \[2, 4\]"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 3).half(), "lses: expected float32 or float64"),
        (torch.zeros(2, 3, 4, dtype=torch.int64), torch.zeros(2, 3), "outs: expected a floating"),
    ],
)
def test_a_wrong_argument_is_named(outs: object, lses: object, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        merge_states(outs, lses)  # type: ignore[arg-type]
