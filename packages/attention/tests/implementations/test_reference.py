"""The reference says what attention is: facts that hold without another implementation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from torchyard_attention.cases import CASES, MASKS, SCORE_MODS
from torchyard_attention.contract import AttentionCall, AttentionGradients, AttentionResult
from torchyard_attention.reference import reference_backward, reference_forward
from torchyard_attention.testing import make_call, mask_blocks
from torchyard_attention.visibility import dense_visibility


def double(mask: str = "", score_mod: str = "", **sizes: object) -> AttentionCall:
    """Return a float64 call of 40 queries and 50 keys."""
    arguments = {"q_length": 40, "kv_length": 50, "dtype": torch.float64, **sizes}
    return make_call(
        **arguments,
        visible=MASKS[mask](2, 4, 40, 50) if mask else None,
        score_mod=SCORE_MODS[score_mod]() if score_mod else None,
    )


def same(first: AttentionResult, second: AttentionResult) -> None:
    torch.testing.assert_close(first.out, second.out)
    torch.testing.assert_close(first.lse, second.lse)


def gradients(call: AttentionCall) -> AttentionGradients:
    result = reference_forward(call)
    assert result.lse is not None
    return reference_backward(call, result.out, result.lse, result.out, None)


@pytest.mark.parametrize("mask", sorted(MASKS))
@pytest.mark.parametrize("block_size", [(128, 128), (16, 16), (7, 20), (64, 1)])
@pytest.mark.parametrize("separate", [True, False])
def test_blocks_say_what_the_dense_mask_said(
    mask: str, block_size: tuple[int, int], separate: bool
) -> None:
    visible = MASKS[mask](2, 4, 100, 90)

    blocks = mask_blocks(visible, block_size, separate_full_blocks=separate)

    assert torch.equal(dense_visibility(blocks, 100, 90), visible)


def test_plain_attention_is_that_of_torch() -> None:
    call = double()

    out = torch.nn.functional.scaled_dot_product_attention(
        call.query, call.key, call.value, scale=call.scale
    )

    torch.testing.assert_close(reference_forward(call).out, out)


def test_how_a_mask_is_cut_into_blocks_changes_nothing() -> None:
    visible = MASKS["window"](2, 4, 40, 50)

    results = [
        reference_forward(replace(double(), mask=mask_blocks(visible, size)))
        for size in ((128, 128), (8, 8), (16, 5))
    ]

    same(results[0], results[1])
    same(results[0], results[2])


def test_a_score_of_minus_infinity_hides_as_a_mask_does() -> None:
    masked = double("causal")
    scored = replace(
        masked,
        mask=None,
        score_mod=make_call(
            score_mod=lambda score, b, h, q, k: torch.where(q >= k, score, -math.inf),
            dtype=torch.float64,
        ).score_mod,
    )

    same(reference_forward(masked), reference_forward(scored))


def test_groups_of_heads_equal_repeated_keys_and_values() -> None:
    grouped = double("window", "alibi", kv_heads=2)
    repeated = replace(
        grouped,
        key=grouped.key.repeat_interleave(2, dim=1),
        value=grouped.value.repeat_interleave(2, dim=1),
    )

    same(reference_forward(grouped), reference_forward(repeated))
    torch.testing.assert_close(
        gradients(grouped).key, gradients(repeated).key.view(2, 2, 2, 50, 32).sum(dim=2)
    )


def test_parts_of_the_keys_merge_by_their_lse() -> None:
    call = double()
    parts = [
        reference_forward(replace(call, key=call.key[:, :, part], value=call.value[:, :, part]))
        for part in (slice(0, 17), slice(17, 50))
    ]
    lses = torch.stack([part.lse for part in parts])
    weights = lses.softmax(dim=0).unsqueeze(-1)
    merged = (weights * torch.stack([part.out for part in parts])).sum(dim=0)

    same(reference_forward(call), AttentionResult(merged, lses.logsumexp(dim=0)))


def test_the_order_of_keys_changes_nothing() -> None:
    call = double()
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))

    same(
        reference_forward(call),
        reference_forward(replace(call, key=call.key[:, :, order], value=call.value[:, :, order])),
    )


def test_a_row_that_sees_nothing_gives_zero_and_minus_infinity_and_no_gradient() -> None:
    call = replace(CASES["mask-nothing"].call(), max_scores=True)

    result = reference_forward(call)

    assert result.lse is not None
    assert result.max_scores is not None
    assert (result.out == 0).all()
    assert (result.lse == -math.inf).all()
    assert (result.max_scores == -math.inf).all()
    given = reference_backward(
        call, result.out, result.lse, torch.ones_like(result.out), torch.ones_like(result.lse)
    )
    assert all((tensor == 0).all() for tensor in (given.query, given.key, given.value))


def test_hidden_keys_and_values_that_are_nan_take_no_part() -> None:
    call = double("causal")
    key, value = call.key.clone(), call.value.clone()
    key[:, :, 40:], value[:, :, 40:] = math.nan, math.inf
    poisoned = replace(call, key=key, value=value)

    same(reference_forward(call), reference_forward(poisoned))
    for name in ("query", "key", "value"):
        torch.testing.assert_close(
            getattr(gradients(poisoned), name), getattr(gradients(call), name)
        )


def test_results_have_the_dtypes_of_the_contract() -> None:
    call = CASES["bfloat16-window-alibi"].call()

    result = reference_forward(call)

    assert result.lse is not None
    assert (result.out.dtype, result.lse.dtype) == (torch.bfloat16, torch.float32)
    given = gradients(call)
    assert {given.query.dtype, given.key.dtype, given.value.dtype} == {torch.bfloat16}
    assert given.captured[0].dtype == torch.float32


def test_whole_numbers_that_are_captured_get_no_gradient() -> None:
    offsets = torch.tensor([0, 1, 2, 3])
    call = make_call(score_mod=lambda score, b, h, q, k: score + 0.1 * offsets[h])

    assert call.captured_grad == (False,)
    assert gradients(call).captured == (None,)
