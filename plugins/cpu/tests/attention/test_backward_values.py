"""What backward kernels do with NaN, empty rows, the lse's gradient, and any number of threads."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from torchyard_cpu import _native

if TYPE_CHECKING:
    from plugins.cpu.tests.gradients import Problem

each_kernel = pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        pytest.param(name, getattr(torch, dtype), id=name.removeprefix("attention_backward_"))
        for name, dtype, _, needed in _native.backward_kernels()
        if set(needed) <= set(_native.cpu_features())
    ],
)


def problem(dtype: torch.dtype, visible: Tensor | None = None, block: int = 64) -> Problem:
    """Return 140 rows of two heads against 200 keys of one, causal where not told otherwise."""
    from plugins.cpu.tests.conftest import block_mask
    from plugins.cpu.tests.gradients import Problem

    if visible is None:
        visible = (torch.arange(140)[:, None] >= torch.arange(200)[None, :])[None, None]
    return Problem(
        torch.randn(1, 2, 140, 40).to(dtype),
        torch.randn(1, 1, 200, 40).to(dtype),
        torch.randn(1, 1, 200, 24).to(dtype),
        torch.randn(1, 2, 140, 24).to(dtype),
        torch.randn(1, 2, 140),
        visible,
        block_mask(visible, (block, block)),
    )


def close(got: Tensor, expected: Tensor) -> None:
    """Hold two results of the same products, summed by other instructions, together."""
    eps = torch.finfo(got.dtype).eps
    torch.testing.assert_close(got, expected, rtol=4 * eps, atol=32 * eps)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["key", "value"])
@each_kernel
def test_a_key_that_no_row_sees_reaches_no_gradient(
    kernel: str, dtype: torch.dtype, place: str, bad: float
) -> None:
    from plugins.cpu.tests.gradients import forward, run

    given = problem(dtype)
    result = forward(given)
    clean = run(kernel, given, result)
    getattr(given, place)[0, 0, [141, 199], 3] = bad
    for got, expected in zip(run(kernel, given, result), clean, strict=True):
        close(got, expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", ["key", "value"])
@each_kernel
def test_rows_that_do_not_see_a_key_keep_their_gradient(
    kernel: str, dtype: torch.dtype, place: str, bad: float
) -> None:
    from plugins.cpu.tests.gradients import Forward, forward, run

    given = problem(dtype)
    before = forward(given)
    clean = run(kernel, given, before)[0]
    getattr(given, place)[0, 0, 70, 3] = bad
    after = forward(given)
    # The dense forward multiplies hidden values by 0.
    see = (torch.arange(140) >= 70)[:, None]
    result = Forward(torch.where(see, after.out, before.out), after.lse)
    got = run(kernel, given, result)[0]

    close(got[:, :, :70], clean[:, :, :70])
    assert not got[:, :, 70:].isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", ["query", "grad_out", "grad_lse"])
@each_kernel
def test_keys_that_a_row_does_not_see_keep_their_gradient(
    kernel: str, dtype: torch.dtype, place: str, bad: float
) -> None:
    from plugins.cpu.tests.gradients import forward, run

    given = problem(dtype)
    clean = run(kernel, given)
    getattr(given, place)[0, 1, 70, ...] = bad
    query, key, value = run(kernel, given, forward(given))

    others = torch.arange(140) != 70
    close(query[:, :, others], clean[0][:, :, others])
    close(query[:, 0], clean[0][:, 0])
    close(key[:, :, 71:], clean[1][:, :, 71:])
    close(value[:, :, 71:], clean[2][:, :, 71:])
    assert not query[:, 1, 70].isfinite().any()


@each_kernel
def test_rows_that_see_nothing_give_and_get_nothing(kernel: str, dtype: torch.dtype) -> None:
    from plugins.cpu.tests.gradients import exact, forward, run

    visible = torch.rand(1, 2, 140, 200) < 0.5
    visible[:, :, [0, 5, 66, 139]] = False
    given = problem(dtype, visible)
    expected = exact(given)
    empty = (~visible).all(-1)
    for tensor in (given.query, given.grad_out, given.grad_lse):
        assert tensor is not None
        tensor[empty] = math.nan
    result = forward(replace(given, query=given.query.nan_to_num()))
    got = run(kernel, given, result)

    assert (got[0][empty] == 0).all()
    for mine, true in zip(got, expected, strict=True):
        torch.testing.assert_close(mine.double(), true, rtol=0.02, atol=0.05)


@each_kernel
def test_scores_that_are_all_minus_infinity_count_as_unseen(
    kernel: str, dtype: torch.dtype
) -> None:
    from plugins.cpu.tests.gradients import run

    given = replace(problem(dtype), visible=None, mask=None)
    given.query[..., 0] = 1.0
    given.key[..., 0] = -math.inf
    for grad in run(kernel, given):
        assert (grad == 0).all()


@each_kernel
def test_small_steps_change_the_outputs_as_the_gradients_say(
    kernel: str, dtype: torch.dtype
) -> None:
    from plugins.cpu.tests.gradients import Problem, run

    given = problem(dtype, torch.rand(1, 2, 140, 200) < 0.7, block=48)

    def loss(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        at = Problem(query, key, value, given.grad_out, visible=given.visible)
        scores = at.scores(torch.float64)
        assert given.grad_lse is not None
        out = scores.softmax(-1) @ value
        lse = scores.logsumexp(-1)
        return (out * given.grad_out).sum() + (lse * given.grad_lse).sum()

    inputs = [t.double() for t in (given.query, given.key, given.value)]
    for i, grad in enumerate(run(kernel, given)):
        direction = torch.randn_like(inputs[i])
        step = 1e-5
        ahead, behind = list(inputs), list(inputs)
        ahead[i], behind[i] = inputs[i] + step * direction, inputs[i] - step * direction
        slope = (loss(*ahead) - loss(*behind)) / (2 * step)
        # The rounding errors of the elements are independent of the direction.
        size = float(grad.double().norm())
        bound = 16 * torch.finfo(dtype).eps * size + 1e-6 * abs(float(slope))
        assert abs(float((grad.double() * direction).sum() - slope)) <= bound


@pytest.mark.parametrize("masked", [False, True])
@each_kernel
def test_gradients_have_the_same_bits_for_any_number_of_threads(
    kernel: str, dtype: torch.dtype, masked: bool
) -> None:
    from plugins.cpu.tests.conftest import block_mask
    from plugins.cpu.tests.gradients import Problem, forward, run

    visible = torch.rand(3, 6, 300, 700) < 0.4 if masked else None
    given = Problem(
        torch.randn(3, 6, 300, 40).to(dtype),
        torch.randn(3, 2, 700, 40).to(dtype),
        torch.randn(3, 2, 700, 40).to(dtype),
        torch.randn(3, 6, 300, 40).to(dtype),
        visible=visible,
        mask=None if visible is None else block_mask(visible, (96, 160)),
    )
    result = forward(given)
    alone = run(kernel, given, result)
    for threads in (2, 3, 7, 64):
        together = run(kernel, given, result, threads=threads)
        for mine, theirs in zip(alone, together, strict=True):
            assert torch.equal(mine, theirs), f"{threads} threads"


@each_kernel
def test_one_long_head_has_the_same_bits_for_any_number_of_threads(
    kernel: str, dtype: torch.dtype
) -> None:
    from plugins.cpu.tests.conftest import block_mask
    from plugins.cpu.tests.gradients import Problem, forward, run

    # All threads work on one head, and a causal mask leaves them unequal work.
    visible = (torch.arange(1500)[:, None] >= torch.arange(1500)[None, :])[None, None]
    tensors = [torch.randn(1, 1, 1500, 16).to(dtype) for _ in range(4)]
    given = Problem(*tensors, visible=visible, mask=block_mask(visible, (128, 128)))
    result = forward(given)
    alone = run(kernel, given, result)
    for threads in (2, 5, 16):
        together = run(kernel, given, result, threads=threads)
        for mine, theirs in zip(alone, together, strict=True):
            assert torch.equal(mine, theirs), f"{threads} threads"
