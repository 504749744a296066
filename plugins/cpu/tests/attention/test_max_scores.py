"""Each row's greatest score, from the forward and the decode kernels."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard import probe_platform
from torchyard_attention import AuxRequest, flex_attention, reference
from torchyard_attention.cases import CASES, Case
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.testing import make_call, request_of
from torchyard_attention.tolerance import Ruler, report
from torchyard_cpu import _isa, _native, attention
from torchyard_cpu.attention._forward import NativeForward

ISAS = [
    isa
    for isa, needed in _isa.feature_sets().items()
    if needed <= frozenset(_native.cpu_features())
]
DTYPES = [getattr(torch, name) for name in attention.DTYPES]
each_isa = pytest.mark.parametrize("isa", ISAS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
# A call of a decode kernel, and one of a forward kernel.
each_length = pytest.mark.parametrize("q_length", [3, 75])


def call_of(dtype: torch.dtype, q_length: int, **changed: Any) -> AttentionCall:
    sizes: dict[str, Any] = {"q_heads": 4, "kv_heads": 2, "kv_length": 600, "head_dim": 24}
    return make_call(dtype=dtype, q_length=q_length, max_scores=True, **{**sizes, **changed})


def greatest(result: AttentionResult) -> Tensor:
    assert result.max_scores is not None
    assert result.max_scores.dtype == torch.float32
    assert result.max_scores.is_contiguous()
    return result.max_scores


def check(call: AttentionCall, isa: str) -> None:
    """Hold all outputs to the ruler, and the greatest score to its own roundings.

    With eps float32's spacing, a score's sum of D products is off by sqrt(D) / 2 roundings of
    (abs(q) @ abs(k)) * scale, whose partial sums are smaller; and the maximum, kept in units of
    log2, by four roundings of itself.
    """
    assert attention.supports(request_of(call), probe_platform(), isa=isa).supported
    result = NativeForward(isa)(call)
    assert not report(Ruler(call).compare(result))
    wide = {name: getattr(call, name).double() for name in ("query", "key", "value")}
    exact = reference.reference_forward(dataclasses.replace(call, **wide)).max_scores
    assert exact is not None
    got = greatest(result).double()
    assert torch.equal(got.isneginf(), exact.isneginf())
    if call.score_mod is not None or not exact.numel() or not call.key.numel():
        return
    key = wide["key"].abs().repeat_interleave(call.query.shape[1] // call.key.shape[1], 1)
    spread = (wide["query"].abs() @ key.mT).amax(-1) * abs(call.scale)
    eps = torch.finfo(torch.float32).eps
    bound = eps * (spread * max(1.0, call.query.shape[-1] ** 0.5 / 4) + 2 * exact.abs())
    finite = exact.isfinite()
    assert ((got - exact).abs() <= bound)[finite].all()


@each_isa
@each_dtype
@each_length
@pytest.mark.parametrize("mask", ["", "causal", "empty_rows", "random"])
def test_the_greatest_score_is_the_greatest_visible_one(
    mask: str, q_length: int, dtype: torch.dtype, isa: str
) -> None:
    sizes = {"q_length": q_length, "kv_length": 600, "kv_heads": 2, "max_scores": True}
    check(Case("any", {**sizes, "dtype": dtype}, mask).call(), isa)


@pytest.mark.parametrize("name", CASES)
def test_every_case_of_every_implementation(name: str) -> None:
    call = dataclasses.replace(CASES[name].call(), max_scores=True)
    if attention.supports(request_of(call), probe_platform()).supported:
        check(call, "")


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    dtype=st.sampled_from(DTYPES),
    lengths=st.tuples(st.integers(0, 40), st.integers(0, 1300)),
    heads=st.sampled_from([(1, 1), (4, 2), (5, 1)]),
    dims=st.tuples(st.integers(1, 70), st.integers(1, 40)),
    mask=st.sampled_from(["", "causal", "window", "random", "empty_rows", "nothing"]),
    score=st.sampled_from(["", "", "alibi", "softcap"]),
    scale=st.sampled_from([None, -0.3, 0.0, 3.0]),
)
def test_any_call(
    dtype: torch.dtype,
    lengths: tuple[int, int],
    heads: tuple[int, int],
    dims: tuple[int, int],
    mask: str,
    score: str,
    scale: float | None,
    isa: str,
) -> None:
    sizes = {
        "dtype": dtype,
        "q_heads": heads[0],
        "kv_heads": heads[1],
        "q_length": lengths[0],
        "kv_length": lengths[1],
        "head_dim": dims[0],
        "value_dim": dims[1],
        "scale": scale,
        "max_scores": True,
    }
    check(Case("any", sizes, mask, score).call(), isa)


@each_isa
@each_length
@pytest.mark.parametrize("step", [-3.0, 0.01, 3.0])
def test_the_greatest_score_may_come_first_or_last(step: float, q_length: int, isa: str) -> None:
    call = call_of(torch.float32, q_length)
    ramp = torch.arange(600.0)[:, None] * step
    call.query[...] = 1.0
    call.key[...] = ramp
    exact = (call.query.double() @ call.key.double().repeat_interleave(2, 1).mT) * call.scale
    modified = dataclasses.replace(
        call_of(torch.float32, q_length, score_mod=lambda s, b, h, q, k: s * 0 + k * step),
    )

    got = greatest(NativeForward(isa)(call))
    torch.testing.assert_close(got.double(), exact.amax(-1), rtol=1e-6, atol=1e-6)
    got = greatest(NativeForward(isa)(modified))
    torch.testing.assert_close(got, torch.full_like(got, max(0.0, 599 * step)), rtol=1e-6, atol=0)


@each_isa
@each_dtype
@each_length
@pytest.mark.parametrize("modified", [False, True])
def test_nan_counts_as_the_greatest_and_infinity_as_itself(
    modified: bool, q_length: int, dtype: torch.dtype, isa: str
) -> None:
    # Rows see keys up to their own and 500 more; the keys after those are hidden.
    visible = torch.arange(q_length)[:, None] + 500 >= torch.arange(600)
    score_mod = (lambda s, b, h, q, k: s + 1) if modified else None
    call = call_of(dtype, q_length, visible=visible, block_size=(16, 48), score_mod=score_mod)
    call.query[..., 0] = 1.0
    call.query[:, 3:, :, 0] = -1.0
    call.key[0, 0, 7, 0] = math.inf
    call.key[1, 0, 7, 0] = math.nan
    call.key[0, 1, [8, 501], 0] = torch.tensor([math.inf, math.nan], dtype=dtype)
    call.key[1, 1, [8, 501], 0] = torch.tensor([math.nan, math.inf], dtype=dtype)
    call.key[:, :, 590] = math.nan
    got = greatest(NativeForward(isa)(call))
    exact = reference.reference_forward(
        dataclasses.replace(call, query=call.query.double(), key=call.key.double())
    ).max_scores
    assert exact is not None

    assert got[0, 0].isposinf().all()
    assert got[0, 2, :1].isposinf().all(), "the NaN is hidden from the first row"
    assert got[0, 2, 1:].isnan().all()
    assert got[1].isnan().all()
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5, equal_nan=True)


@each_isa
@each_length
def test_rows_of_minus_infinity_have_it_as_their_greatest(q_length: int, isa: str) -> None:
    call = call_of(torch.float32, q_length)
    call.query[..., 0] = 1.0
    call.key[:, 0, :, 0] = -math.inf
    got = greatest(NativeForward(isa)(call))

    assert got[:, :2].isneginf().all()
    assert got[:, 2:].isfinite().all()


@each_isa
@each_dtype
@each_length
def test_asking_for_it_changes_the_other_outputs_by_roundings_alone(
    q_length: int, dtype: torch.dtype, isa: str
) -> None:
    call = call_of(dtype, q_length)
    plain = NativeForward(isa)(dataclasses.replace(call, max_scores=False))
    asked = NativeForward(isa)(call)

    assert plain.max_scores is None
    assert plain.lse is not None
    torch.testing.assert_close(asked.lse, plain.lse, rtol=1e-6, atol=1e-5)
    # An exponent's rounding is relative to scores of up to 5; a result's to itself.
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(asked.out, plain.out, rtol=eps, atol=eps + 1e-6)


@each_length
def test_it_has_the_same_bits_for_any_number_of_threads(q_length: int) -> None:
    call = call_of(torch.bfloat16, q_length, kv_length=3000)
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(greatest(NativeForward("")(call)))

    assert all(torch.equal(a, b) for a, b in itertools.pairwise(results))


@each_length
def test_flex_attention_returns_it(q_length: int) -> None:
    query, key, value = torch.randn(2, 2, q_length, 16), *torch.randn(2, 2, 2, 90, 16)
    aux = AuxRequest(lse=True, max_scores=True)
    _, got = flex_attention(query, key, value, return_aux=aux, implementation="cpu.native")

    torch.testing.assert_close(got.max_scores, (query @ key.mT / 4).amax(-1))
