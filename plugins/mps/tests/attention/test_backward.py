"""The gradients in Metal are as near to float64 as naive ones, and have no finding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.attention.tests.attention_calls import CALLS, LAYOUTS, call_of, laid_out
from packages.attention.tests.score_programs import LENGTH, MASKS, SCORES
from plugins.mps.tests.attention.gradient_runs import given_for, gradients, worst
from plugins.mps.tests.attention.random_calls import random_call
from plugins.mps.tests.emulated import emulated
from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call, traced_score_mod
from torchyard_mps.attention import backward
from torchyard_mps.attention._captured import PlaceSums
from torchyard_programs import UnsupportedProgramError

# Each of another kind; the rest are the same with other sizes and programs.
_QUICK = (
    *("plain", "causal-half", "value_dim-24", "lengths-5-0", "grouped-2", "odd-blocks", "nothing"),
    *("per-batch-and-head", "hides-by-score", "row-column", "bfloat16-bias"),
)


def _check(call: AttentionCall, *, grad_lse: bool = True) -> None:
    inputs = given_for(call, grad_lse=grad_lse)
    assert worst(call, inputs, gradients(call, inputs)) <= 1.0


@pytest.mark.parametrize(
    "name",
    [name if name in _QUICK else pytest.param(name, marks=pytest.mark.sweep) for name in CALLS],
)
def test_calls(name: str) -> None:
    _check(call_of(name), grad_lse="half" not in name)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("gelu", "relative-index") else pytest.param(name, marks=pytest.mark.sweep)
        for name in SCORES
    ],
)
def test_score_programs(name: str) -> None:
    sizes = {"q_heads": 4, "kv_heads": 2, "q_length": 33, "kv_length": LENGTH, "head_dim": 8}
    _check(make_call(batch=1, **sizes, score_mod=SCORES[name]))


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("document", "dense") else pytest.param(name, marks=pytest.mark.sweep)
        for name in MASKS
    ],
)
def test_mask_programs(name: str) -> None:
    function, at = MASKS[name], torch.arange(LENGTH)
    zero = torch.zeros(1, dtype=torch.int64)
    visible = function(zero, zero, at[:, None], at).expand(1, 1, LENGTH, LENGTH)
    sizes = {"batch": 1, "q_heads": 1, "q_length": LENGTH, "head_dim": 8}
    call = make_call(**sizes, visible=visible, block_size=(16, 32))
    assert call.mask is not None
    mod = traced_score_mod(lambda s, b, h, q, k: function(b, h, q, k))
    # Half of them with the mask's lists, where the program is computed and the bits are not read.
    hidden = replace(call.mask, bits=torch.zeros_like(call.mask.bits))
    mask = hidden if list(MASKS).index(name) % 2 else None
    inputs = given_for(call)
    assert worst(call, inputs, gradients(replace(call, mask=mask), inputs, mod)) <= 1.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(dtype: torch.dtype) -> None:
    call = call_of("grouped-2")
    tensors = (call.query, call.key, call.value)
    query, key, value = (tensor.to(dtype) for tensor in tensors)
    _check(replace(call, query=query, key=key, value=value))


def test_gradients_that_half_does_not_hold_on_the_way_are_right() -> None:
    """A loss that is scaled makes gradients of scores that overflow half."""
    call = make_call(batch=1, q_heads=1, q_length=16, head_dim=16, dtype=torch.float16, scale=1e-4)
    out, lse, grad_out, _ = given_for(call, grad_lse=False)
    large = (out, lse, grad_out.sign() * 32000, None)
    value = call.value.sign() * 4
    call = replace(call, value=value)
    got = gradients(call, large)
    assert (large[2].float() @ value.float().mT).abs().max() > 2 * torch.finfo(torch.float16).max
    assert all(tensor.isfinite().all() for tensor in (got.query, got.key))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout: str) -> None:
    call = laid_out(call_of("grouped-2"), layout)
    out, lse, grad_out, grad_lse = given_for(call)
    out, grad_out = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (out, grad_out))
    inputs = (out, lse, grad_out, grad_lse)
    assert worst(call, inputs, gradients(call, inputs)) <= 1.0


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(((0, 0), (16, 16), (20, 13), (128, 128))),
    st.integers(0, 2**20),
)
@settings(max_examples=4)
def test_sizes(
    kv_heads: int, group: int, q_length: int, kv_length: int, blocks: tuple[int, int], seed: int
) -> None:
    call = random_call(kv_heads, group, q_length, kv_length, blocks, seed)
    _check(call)


def test_every_order_of_threads_gives_the_same_bits() -> None:
    """Runs in two orders that differ, and accesses outside of memory, are findings."""
    sizes = {"q_heads": 2, "kv_heads": 1, "q_length": 33, "kv_length": 20, "head_dim": 8}
    bias = torch.randn((33, 20), generator=torch.Generator().manual_seed(5))
    call = make_call(batch=2, **sizes, score_mod=lambda s, b, h, q, k: s + bias[q, k] * s)
    inputs = given_for(call)
    with emulated(orders=2, address_sanitizer=True):
        got = backward(call, *inputs)
    assert worst(call, inputs, got) <= 1.0


def test_only_the_gradients_that_are_asked_for_are_returned() -> None:
    call = replace(call_of("row-column"), captured_grad=(False,))
    assert gradients(call, given_for(call)).captured == (None,)


def test_sums_by_place_are_exact_to_their_rounding() -> None:
    generator = torch.Generator().manual_seed(2)
    parts = torch.randn(3000, generator=generator) * 10.0 ** torch.randint(
        -4, 5, (3000,), generator=generator
    )
    places = torch.randint(-1, 7, (3000,), generator=generator)
    sums = PlaceSums(9, parts.device)
    with emulated():
        for half in (slice(0, 1400), slice(1400, None)):
            sums.add(parts[half], places[half])
    wanted = torch.stack([parts[places == place].double().sum() for place in range(9)])
    assert torch.equal(sums.total, wanted.float())


def test_float64_of_a_program_is_refused() -> None:
    call = make_call(batch=1, score_mod=lambda s, b, h, q, k: (s.double() * 2).float())
    inputs = given_for(call)
    with pytest.raises(UnsupportedProgramError, match="float64, which Metal does not have"):
        gradients(call, inputs)


def test_more_captured_tensors_than_buffers_are_refused() -> None:
    tables = [torch.zeros(4) for _ in range(16)]
    call = make_call(batch=1, score_mod=lambda s, b, h, q, k: s + sum(t[h] for t in tables))
    inputs = given_for(call)
    with pytest.raises(ValueError, match="at most 15 captured tensors, got 16"):
        gradients(call, inputs)
