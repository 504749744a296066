"""score_mod inside cpu.native's backward: gradients through programs and of what they capture."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from plugins.cpu.tests.score_mods import (
    BIAS,
    CAP,
    HEADS,
    KEYS,
    LOW,
    MODS,
    ROWS,
    SLOPES,
    TABLE,
    Mod,
    score_call,
)
from torchyard import ReasonCode, probe_platform
from torchyard_attention import explain, flex_attention, reference
from torchyard_attention.contract import AttentionCall, AttentionGradients
from torchyard_attention.implementations._tiled_backward import tiled_backward
from torchyard_attention.testing import request_of
from torchyard_attention.tolerance import GradientRuler, report
from torchyard_cpu import _isa, _native, attention
from torchyard_cpu.attention._backward import NativeBackward
from torchyard_cpu.attention._forward import NativeForward

ISAS = [
    isa
    for isa, needed in _isa.feature_sets().items()
    if needed <= frozenset(_native.cpu_features())
]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

CORNERS = torch.arange(-3.0, 4.0) / 2
BUCKETS = torch.log2(torch.arange(300).abs() + 1.0).long()
BUCKET_BIAS = torch.linspace(-1, 1, 9 * HEADS).view(9, HEADS)
BATCH_BIAS = torch.randn(2, HEADS, ROWS, KEYS, generator=torch.Generator().manual_seed(1))

# What the forward's tests have no use for.
LEARNT: dict[str, Mod] = {
    "gate": lambda s, b, h, q, k: s * CAP,
    "gate of gate": lambda s, b, h, q, k: torch.tanh(s * SLOPES[h]) * torch.sigmoid(CAP * TABLE[q]),
    "bias of batches": lambda s, b, h, q, k: s + BATCH_BIAS[b, h, q, k],
    "bias of pairs": lambda s, b, h, q, k: s + BIAS[0][q, k],
    "bias by bucket": lambda s, b, h, q, k: s + BUCKET_BIAS[BUCKETS[(q - k).abs()], h],
    "bias of keys": lambda s, b, h, q, k: s + TABLE[k] * TABLE[-1 - k],
    "read twice": lambda s, b, h, q, k: s * TABLE[h + 5] + TABLE[q] - TABLE[k],
    "one element": lambda s, b, h, q, k: s + TABLE[7] * 0.5,
    "ties": lambda s, b, h, q, k: (
        s + torch.maximum(TABLE[q], TABLE[k]) + torch.minimum(CORNERS[q % 7], CORNERS[k % 7])
    ),
    "corners": lambda s, b, h, q, k: (
        s
        + torch.relu(CORNERS[k % 7])
        + torch.clamp(CORNERS[q % 7], -1, 1)
        + torch.clamp(CORNERS[(q + k) % 7], max=0.5)
        + CORNERS[(q - k) % 7].abs()
        + torch.clamp(s, min=CORNERS[k % 7])
    ),
    "detached": lambda s, b, h, q, k: s.detach() * CAP + s * SLOPES.detach()[h] + TABLE.detach()[q],
    "hidden by score": lambda s, b, h, q, k: torch.where(k > 100, -math.inf, s * TABLE[k]),
    "score unused": lambda s, b, h, q, k: TABLE[(q * k) % 100] + LOW[h, k].float(),
}
# Near 1e37 a float32 lse says nothing about weights, and cubes of scores take digits off it.
GRADIENTS = {name: mod for name, mod in MODS.items() if name not in ("huge", "powers")} | {
    "small powers": lambda s, *index: MODS["powers"](s * 0.25, *index),
    **{f"learnt {name}": mod for name, mod in LEARNT.items()},
}


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill working memory with NaN, so that a read of what was never written shows."""
    run = _native.attention_backward
    monkeypatch.setattr(_native, "attention_backward", lambda *args: run(*args[:-1], True))


def _visible(masked: bool) -> dict[str, Any]:
    q, k = torch.arange(ROWS)[:, None], torch.arange(KEYS)
    window = (q >= k - 60) & (q - k < 40) & (q % 7 != 3)
    return {"visible": window, "block_size": (32, 48)} if masked else {}


@cache
def _given(name: str, dtype: torch.dtype, masked: bool) -> tuple[AttentionCall, Any, GradientRuler]:
    """Return a call, what a backward is given besides, and the ruler."""
    call = score_call(GRADIENTS[name], dtype=dtype, **_visible(masked))
    result = reference.reference_forward(call)
    generator = torch.Generator().manual_seed(3)
    grad_out = torch.randn(result.out.shape, generator=generator).to(dtype)
    grad_lse = torch.randn(*result.out.shape[:3], generator=generator)
    rest = (result.out, result.lse, grad_out, grad_lse)
    return call, rest, GradientRuler(call, grad_out, grad_lse)


def _own(call: AttentionCall, *, threads: int = 1, isa: str = "") -> AttentionGradients:
    """Return the gradients of the sum of squares of our own forward's out, and of its lse."""
    torch.set_num_threads(threads)
    result = NativeForward(isa)(call)
    assert result.lse is not None
    return NativeBackward(isa)(
        call, result.out, result.lse, result.out, torch.ones_like(result.lse)
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_as_near_to_the_reference_as_naive_ones(
    name: str, dtype: torch.dtype, masked: bool, isa: str, gradient_errors: dict[str, list[float]]
) -> None:
    call, rest, ruler = _given(name, dtype, masked)
    verdict = attention.supports_backward(request_of(call, grad=True), probe_platform(), isa=isa)
    assert verdict.supported, verdict.text

    errors = ruler.compare(NativeBackward(isa)(call, *rest))

    worst = gradient_errors.setdefault(f"score programs, {isa}, {str(dtype)[6:]}", [0.0] * 5)
    ratios = [error.ratio for error in errors[:3]]
    ratios.append(max((error.ratio for error in errors[3:]), default=0.0))
    worst[:] = [max(a, b) for a, b in zip(worst, ratios, strict=False)] + [worst[4] + 1]
    assert not report(errors), report(errors)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_captured_gradients_are_as_near_to_the_reference_as_those_of_tiles(
    name: str, isa: str
) -> None:
    call, rest, _ = _given(name, torch.float32, True)
    ours, theirs, exact = (
        backward(call, *rest).captured
        for backward in (NativeBackward(isa), tiled_backward, reference.reference_backward)
    )
    for got, near, true in zip(ours, theirs, exact, strict=True):
        if got is None or near is None or true is None:
            assert got is near is true is None
            continue
        error, allowed, size = (float(t.abs().max()) for t in (got - true, near - true, true))
        # Of a sum over all pairs, in float32 for a row and in float64 beyond; then one rounding.
        assert error <= 3 * allowed + (1e-5 + torch.finfo(got.dtype).eps / 2) * size


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("q_length", "kv_length"), [(1, 1), (1, 257), (7, 64), (129, 65), (6, 1200), (133, 513)]
)
def test_lengths_about_the_edges_of_tiles_and_key_blocks(
    q_length: int, kv_length: int, isa: str
) -> None:
    near, keys = torch.randn(q_length + kv_length), torch.randn(HEADS, kv_length)
    call = score_call(
        lambda s, b, h, q, k: s * keys[h, k] + near[q - k + kv_length],
        q_length=q_length,
        kv_length=kv_length,
    )
    result = reference.reference_forward(call)
    assert result.lse is not None
    ruler = GradientRuler(call, result.out)

    got = NativeBackward(isa)(call, result.out, result.lse, result.out, None)

    assert not report(ruler.compare(got))


@pytest.mark.parametrize(("q_length", "kv_length", "batch"), [(0, 5, 1), (5, 0, 1), (5, 5, 0)])
def test_calls_without_pairs_have_gradients_of_zero(
    q_length: int, kv_length: int, batch: int
) -> None:
    call = score_call(GRADIENTS["alibi"], q_length=q_length, kv_length=kv_length, batch=batch)

    gradients = _own(call)

    for tensor in (gradients.query, gradients.key, gradients.value, *gradients.captured):
        assert tensor is not None
        assert (tensor == 0).all()


@pytest.mark.parametrize("isa", ISAS)
def test_what_a_derivative_is_at_hidden_pairs_reaches_nothing(isa: str) -> None:
    q, k = torch.arange(ROWS)[:, None], torch.arange(KEYS)

    def gradients(lowest: float) -> AttentionGradients:
        call = score_call(
            lambda s, b, h, q, k: (
                (s + TABLE[q - k] * SLOPES[h])
                / torch.sqrt(torch.clamp((q - k + 1) * 1.0, min=lowest))
            ),
            visible=q >= k,
        )
        return _own(call, isa=isa)

    # Infinite or NaN where q < k, for the score and for every element.
    got, tame = gradients(-math.inf), gradients(1.0)

    for name in ("query", "key", "value"):
        assert torch.equal(getattr(got, name), getattr(tame, name))
    assert all(map(torch.equal, got.captured, tame.captured))
    assert got.query.isfinite().all()


@pytest.mark.parametrize("isa", ISAS)
def test_a_score_of_nan_reaches_its_row_and_its_keys_alone(isa: str) -> None:
    def mod(value: float) -> Mod:
        return lambda s, b, h, q, k: torch.where((q == 9) & (k == 100), value, s * SLOPES[h])

    q, k = torch.arange(ROWS)[:, None], torch.arange(KEYS)
    visible = (q != 9) | (k >= 70)
    got = _own(score_call(mod(math.nan), visible=visible), isa=isa)
    plain = _own(score_call(mod(0.5), visible=visible), isa=isa)

    others = torch.arange(ROWS) != 9
    assert got.query[:, :, 9].isnan().all()
    torch.testing.assert_close(got.query[:, :, others], plain.query[:, :, others])
    torch.testing.assert_close(got.key[:, :, :64], plain.key[:, :, :64])
    torch.testing.assert_close(got.value[:, :, :64], plain.value[:, :, :64])
    assert got.captured[0] is not None
    assert got.captured[0].isnan().all()


def test_scores_of_minus_infinity_have_no_gradient_and_empty_rows_none() -> None:
    rows = torch.arange(ROWS)
    call = score_call(lambda s, b, h, q, k: torch.where((q % 3 == 0) | (k < 9), -math.inf, s))

    gradients = _own(call)

    assert (gradients.query[:, :, rows % 3 == 0] == 0).all()
    assert (gradients.key[:, :, :9] == 0).all()
    assert (gradients.value[:, :, :9] == 0).all()
    assert gradients.key[:, :, 9:].abs().min() > 0
    assert gradients.query.isfinite().all()


@pytest.mark.parametrize("isa", ISAS)
def test_an_index_out_of_range_is_an_error(isa: str) -> None:
    call = score_call(lambda s, b, h, q, k: s + TABLE[q * k])
    lse, out = torch.zeros(2, HEADS, ROWS), torch.zeros(2, HEADS, ROWS, 24)

    with pytest.raises(IndexError, match="dimension 0 with size 300"):
        NativeBackward(isa)(call, out, lse, out, None)


# Where sums are added: in copies, or in the shared tensor, whose keys, heads or batches keep apart.
@pytest.mark.parametrize("shape", ["copies", "one copy", "keys", "heads", "batches", "all", "both"])
def test_results_have_the_same_bits_for_any_number_of_threads(shape: str) -> None:
    batch, heads, rows, keys = 3, 6, 140, 700
    slopes, near = torch.rand(heads), torch.randn(rows + keys)
    huge = torch.randn(3 << 20) if shape == "one copy" else torch.zeros(1)
    pairs, all_pairs = torch.randn(rows * 2, keys), torch.randn(heads, rows, keys)
    batches = torch.randn(batch, rows, keys)
    order = torch.randperm(keys)
    mods: dict[str, Mod] = {
        "copies": lambda s, b, h, q, k: s * slopes[h] + near[q - k + keys] * near[(q - k).abs()],
        "one copy": lambda s, b, h, q, k: s + huge[(q * k * 31 + h) % (3 << 20)],
        "keys": lambda s, b, h, q, k: s + pairs[q + b % 2, k],
        "heads": lambda s, b, h, q, k: s + all_pairs[h, q, order[k]],
        "batches": lambda s, b, h, q, k: s + batches[b, q, order[k]],
        "all": lambda s, b, h, q, k: s + all_pairs[h, q, k],
        "both": lambda s, b, h, q, k: s * slopes[h] + pairs[q, k] + batches[b, q, k],
    }
    call = score_call(
        mods[shape],
        batch=batch,
        q_heads=heads,
        kv_heads=3,
        q_length=rows,
        kv_length=keys,
        dtype=torch.bfloat16,
        head_dim=16,
    )
    alone = _own(call)
    result = reference.reference_forward(call)
    assert result.lse is not None
    exact = reference.reference_backward(
        call, result.out, result.lse, result.out, torch.ones_like(result.lse)
    )
    for got, true in zip(alone.captured, exact.captured, strict=True):
        assert (got is None) == (true is None)
        if got is None or true is None:
            continue
        torch.testing.assert_close(got, true, rtol=0.03, atol=0.03 * float(true.abs().max()))

    for threads in (2, 3, 8):
        together = _own(call, threads=threads)
        for name in ("query", "key", "value"):
            assert torch.equal(getattr(alone, name), getattr(together, name)), (name, threads)
        for one, other in zip(alone.captured, together.captured, strict=True):
            assert one is None or torch.equal(one, other), threads


def test_only_wanted_gradients_are_computed() -> None:
    call = score_call(lambda s, b, h, q, k: s * SLOPES[h] + TABLE[q] + CAP)

    every = _own(call).captured
    some = _own(dataclasses.replace(call, captured_grad=(False, True, False))).captured

    assert all(gradient is not None for gradient in every)
    assert some[0] is None
    assert some[2] is None
    assert torch.equal(some[1], every[1])
    assert _own(dataclasses.replace(call, captured_grad=())).captured == (None, None, None)


def test_captured_gradients_are_contiguous_in_the_tensors_shape_and_dtype() -> None:
    expanded = torch.randn(1, ROWS, KEYS).expand(HEADS, -1, -1)
    strided = torch.randn(KEYS, ROWS).mT
    call = score_call(
        lambda s, b, h, q, k: s + expanded[h, q, k] + strided[q, k] + LOW[h, k] + 0 * CAP
    )

    gradients = _own(call).captured

    assert call.score_mod is not None
    for gradient, tensor in zip(gradients, call.score_mod.captured, strict=True):
        assert gradient is not None
        assert (gradient.dtype, gradient.shape) == (tensor.dtype, tensor.shape)
        assert gradient.is_contiguous()


@pytest.mark.parametrize(
    ("mod", "text"),
    [
        (lambda s, b, h, q, k: torch.erfinv(s), "score_mod: has no erfinv"),
        (lambda s, b, h, q, k: s + torch.zeros(4).double()[h], "captured tensor of float64"),
        (lambda s, b, h, q, k: torch.stack([s, s]).sum(), "expected a pointwise score_mod"),
    ],
)
def test_a_program_beyond_the_kernels_is_refused_with_its_reason(mod: Mod, text: str) -> None:
    request = request_of(score_call(mod), grad=True)
    verdict = attention.supports_backward(request, probe_platform())

    assert verdict.code is ReasonCode.SCORE_MOD
    assert text in verdict.text


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_training_through_flex_attention_gives_the_exact_gradients(backend: str | None) -> None:
    torch.compiler.reset()

    def loss(query: Tensor, key: Tensor, value: Tensor, table: Tensor, slopes: Tensor) -> Tensor:
        def mod(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
            return 5 * torch.tanh(s / 5) + table[h, q - k + 79] + slopes[h] * (q - k)

        return flex_attention(query, key, value, mod).sin().sum()

    shapes = [(2, 4, 70, 16), (2, 4, 80, 16), (2, 4, 80, 16), (4, 150), (4,)]
    inputs = [torch.randn(shape).requires_grad_() for shape in shapes]
    decision = explain(*inputs[:3], lambda s, b, h, q, k: s * inputs[4][h], backward=True)
    assert decision.name == "cpu.native"
    function = loss if backend is None else torch.compile(loss, backend=backend, fullgraph=True)

    got = torch.autograd.grad(function(*inputs), inputs)

    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    for ours, exact in zip(got, torch.autograd.grad(loss(*wide), wide), strict=True):
        torch.testing.assert_close(ours, exact.float(), rtol=2e-4, atol=2e-5)


def test_new_closures_and_lengths_keep_the_caches_bounded() -> None:
    from torchyard_cpu._programs import gradient
    from torchyard_cpu.attention import _score_program

    gradient.differentiate.cache_clear()
    _score_program._planned.cache_clear()
    for length in range(1, 31):
        slopes = torch.randn(HEADS)
        _own(
            score_call(
                lambda s, b, h, q, k, slopes=slopes: s + slopes[h] * (k - q),
                q_length=length,
                kv_length=9,
            )
        )

    assert gradient.differentiate.cache_info().currsize == 1
    assert _score_program._planned.cache_info().currsize == 30
