"""score_mod inside cpu.native: what kernels make of programs, against the reference."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard import ReasonCode, probe_platform
from torchyard_attention import reference
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.testing import make_call, request_of
from torchyard_cpu import _isa, _native, attention
from torchyard_cpu._attention_forward import NativeForward

Mod = Callable[..., Any]

ISAS = [isa for isa, needed in _isa.FEATURES.items() if needed <= frozenset(_native.cpu_features())]
HEADS, ROWS, KEYS = 4, 75, 140
_GENERATOR = torch.Generator().manual_seed(3)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def _integers(low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=_GENERATOR)


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
BIAS = _normal(HEADS, ROWS, KEYS)
TABLE = _normal(300)
DOCUMENTS = _integers(0, 3, 2, 200)
HUGE = DOCUMENTS * 2**40
BUCKETS = _integers(-300, 300, 200).to(torch.int16)
FLAGS = _integers(0, 2, HEADS, 200).bool()
LOW = _normal(HEADS, KEYS).to(torch.bfloat16)
CAP = torch.tensor(7.0)

MODS: dict[str, Mod] = {
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "softcap": lambda s, b, h, q, k: CAP * torch.tanh(s / CAP),
    "softcap alibi": lambda s, b, h, q, k: 9 * torch.tanh(s / 9) - (q - k).abs() * SLOPES[h],
    "relative bias": lambda s, b, h, q, k: s + TABLE[q - k + KEYS],
    "relative bias reversed": lambda s, b, h, q, k: s + TABLE[k - q + ROWS],
    "relative bias by distance": lambda s, b, h, q, k: s + TABLE[(q - k).abs()],
    "relative bias clamped": lambda s, b, h, q, k: s + TABLE[torch.clamp(q - k, -20, 20) + 20],
    "negative indices": lambda s, b, h, q, k: s + TABLE[q - k],
    "bias": lambda s, b, h, q, k: s + BIAS[h, q, k],
    "bias transposed": lambda s, b, h, q, k: s + BIAS.mT.contiguous()[h, k, q],
    "bias strided": lambda s, b, h, q, k: s + BIAS.mT[h, k, q],
    "bias expanded": lambda s, b, h, q, k: s + BIAS[:1].expand(HEADS, -1, -1)[h, q, k],
    "bias of stride 2": lambda s, b, h, q, k: s + TABLE[2 * k],
    "bias bfloat16": lambda s, b, h, q, k: s + LOW[h, k],
    "documents": lambda s, b, h, q, k: torch.where(DOCUMENTS[b, q] == DOCUMENTS[b, k], s, -1e9),
    "documents int32": lambda s, b, h, q, k: torch.where(
        DOCUMENTS.int()[b, q] == DOCUMENTS.int()[b, k], s, -math.inf
    ),
    "documents huge": lambda s, b, h, q, k: torch.where(HUGE[b, q] == HUGE[b, k], s, -math.inf),
    "flags": lambda s, b, h, q, k: torch.where(FLAGS[h, k] & ~FLAGS[h, q], s * 2, s),
    "table of table": lambda s, b, h, q, k: s + TABLE[BUCKETS.long()[k]] + TABLE[DOCUMENTS[b, q]],
    "captured scalar": lambda s, b, h, q, k: s * CAP + DOCUMENTS[1, 2],
    "gather of pairs": lambda s, b, h, q, k: s + TABLE[(q * k) % 300],
    "whole division": lambda s, b, h, q, k: (
        s + (q // 7 + k % 5 - (k - q) // 3 + (q - k) % -6) * 0.01
    ),
    "powers of two": lambda s, b, h, q, k: (
        s + ((q - k) // 8 + (q - k) % 16 + ((q << 2) >> 1)) * 0.1
    ),
    "int64": lambda s, b, h, q, k: (
        s + (q * k * 10000000000) % 17 * 0.1 + (q * 10000000000 // 7 > k) * 1.0
    ),
    "int64 wraps": lambda s, b, h, q, k: s + ((q + 1) * (k + 1) * 2**61 > 0) * 0.5,
    "int32 wraps": lambda s, b, h, q, k: s + ((q + 1).int() * (k + 3) * 2**30 > 0) * 0.5,
    "bits": lambda s, b, h, q, k: s + ((q & k) + (q | 3) - (k ^ 5) + ~q) * 0.01,
    "truth": lambda s, b, h, q, k: torch.where(
        torch.logical_or(q == k, torch.logical_not(k > 3)) ^ (h > 1), s, -s
    ),
    "casts": lambda s, b, h, q, k: s.to(torch.int64) * 0.5 + s.int() + (s > 0).float() + s.bool(),
    "functions": lambda s, b, h, q, k: (
        torch.sigmoid(s)
        + torch.log(s.abs() + 1)
        + torch.log2(s.abs() + 2)
        + torch.sqrt(s * s + 1)
        + torch.rsqrt(s * s + 2)
        + torch.exp(s * 0.1)
        + torch.exp2(s)
        + torch.nn.functional.silu(s)
    ),
    "steps": lambda s, b, h, q, k: (
        torch.clamp(s, -1, 1)
        + s.clamp(min=-0.5)
        + torch.relu(s)
        + torch.floor(s)
        + torch.ceil(s)
        + torch.maximum(s, q * 0.01)
        + torch.minimum(s, k)
        + torch.square(s)
    ),
    "powers": lambda s, b, h, q, k: (
        s**2 + s**3 + 2**s + (s.abs() + 1) ** -2 + (s.abs() + 1) ** 0.5 + q**2 * 1e-3
    ),
    "fills": lambda s, b, h, q, k: (
        s + torch.full_like(s, 2.5) + torch.zeros_like(q) + s.new_ones(()) + s.new_full((), 3)
    ),
    "masked fill": lambda s, b, h, q, k: s.masked_fill(k > q + 60, -math.inf),
    "hidden rows": lambda s, b, h, q, k: torch.where(q % 3 == 0, -math.inf, s),
    "nothing": lambda s, b, h, q, k: torch.full_like(s, -math.inf),
    "score unused": lambda s, b, h, q, k: (q - k) * 0.01,
    "a number": lambda s, b, h, q, k: 1.5,
    "huge": lambda s, b, h, q, k: s * 1e37,
    "growing": lambda s, b, h, q, k: s + k * 3.0,
    "shared": lambda s, b, h, q, k: torch.tanh(s) * torch.tanh(s) + torch.tanh(s),
}


def _call(mod: Mod, **changed: Any) -> AttentionCall:
    sizes: dict[str, Any] = {
        "batch": 2,
        "q_heads": HEADS,
        "kv_heads": 2,
        "q_length": ROWS,
        "kv_length": KEYS,
        "head_dim": 24,
    }
    return make_call(**{**sizes, **changed}, score_mod=mod)


def _assert_as_reference(call: AttentionCall, got: AttentionResult, isa: str) -> None:
    exact = dataclasses.replace(
        call, **{name: getattr(call, name).float() for name in ("query", "key", "value")}
    )
    true = reference.reference_forward(exact)
    assert true.lse is not None
    assert got.lse is not None
    low = call.query.dtype == torch.bfloat16
    torch.testing.assert_close(got.lse, true.lse, rtol=2e-5, atol=2e-5)
    # bfloat16: one rounding of each probability where pairs are multiplied, and one of the result.
    bound = 2.0**-7 if low else 3e-5
    torch.testing.assert_close(got.out.float(), true.out, rtol=bound, atol=bound)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODS)
def test_a_program_gives_what_torch_gives(name: str, dtype: torch.dtype, isa: str) -> None:
    call = _call(MODS[name], dtype=dtype)

    verdict = attention.supports(request_of(call), probe_platform(), isa=isa)
    assert verdict.supported, verdict.text
    _assert_as_reference(call, NativeForward(isa)(call), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "name", ["alibi", "bias", "documents", "gather of pairs", "table of table"]
)
@pytest.mark.parametrize("block_size", [(128, 128), (16, 24)], ids=str)
def test_masks_come_after_the_program(name: str, block_size: tuple[int, int], isa: str) -> None:
    q, k = torch.arange(ROWS)[:, None], torch.arange(KEYS)
    call = _call(MODS[name], visible=(q >= k) & (q - k < 40) & (q % 7 != 3), block_size=block_size)

    _assert_as_reference(call, NativeForward(isa)(call), isa)


@pytest.mark.parametrize("isa", ISAS)
def test_what_a_program_makes_of_hidden_pairs_reaches_nothing(isa: str) -> None:
    q, k = torch.arange(ROWS)[:, None], torch.arange(KEYS)
    call = _call(lambda s, b, h, q, k: s / torch.sqrt((q - k + 1) * 1.0), visible=q >= k)

    _assert_as_reference(call, NativeForward(isa)(call), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("q_length", "kv_length"), [(1, 1), (1, 257), (7, 64), (129, 65), (6, 1200), (0, 5), (5, 0)]
)
def test_lengths_about_the_edges_of_tiles(q_length: int, kv_length: int, isa: str) -> None:
    table = torch.randn(2000)
    call = _call(
        lambda s, b, h, q, k: s + table[q - k + kv_length] + table[k] * table[q],
        q_length=q_length,
        kv_length=kv_length,
    )

    _assert_as_reference(call, NativeForward(isa)(call), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_plus_infinity_make_their_row_nan_and_no_other(value: float, isa: str) -> None:
    call = _call(lambda s, b, h, q, k: torch.where((q == 9) & (k == 100), value, s))
    got = NativeForward(isa)(call)

    assert got.out[:, :, 9].isnan().all()
    others = [row for row in range(ROWS) if row != 9]
    plain = NativeForward(isa)(dataclasses.replace(call, score_mod=None))
    torch.testing.assert_close(got.out[:, :, others], plain.out[:, :, others])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("mod", "text"),
    [
        (lambda s, b, h, q, k: s + TABLE[q * k], "dimension 0 with size 300"),
        (lambda s, b, h, q, k: s + BIAS[h, k, q], "dimension 1 with size 75"),
        (lambda s, b, h, q, k: s + SLOPES[q - 100], "dimension 0 with size 4"),
        (lambda s, b, h, q, k: s + SLOPES[4], "index 4 is out of bounds"),
        (lambda s, b, h, q, k: s + torch.zeros(0)[k], "with size 0"),
        (lambda s, b, h, q, k: s + TABLE[q * 2**40], "dimension 0 with size 300"),
    ],
)
def test_an_index_out_of_range_is_an_error(mod: Mod, text: str, isa: str) -> None:
    with pytest.raises(IndexError, match=text):
        NativeForward(isa)(_call(mod))


@pytest.mark.parametrize("isa", ISAS)
def test_an_index_out_of_range_of_a_hidden_pair_is_none(isa: str) -> None:
    table = torch.arange(40.0)
    q, k = torch.arange(ROWS)[:, None], torch.arange(KEYS)
    near = (q >= k) & (q - k < 40)
    got = NativeForward(isa)(_call(lambda s, b, h, q, k: s + table[q - k], visible=near))
    padded = torch.cat([table, torch.zeros(400)])
    wanted = NativeForward(isa)(_call(lambda s, b, h, q, k: s + padded[q - k], visible=near))

    torch.testing.assert_close(got.out, wanted.out, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("mod", "text"),
    [
        (lambda s, b, h, q, k: torch.erfinv(s), "score_mod: has no erfinv"),
        (lambda s, b, h, q, k: torch.round(s, decimals=1), "round with decimals="),
        (lambda s, b, h, q, k: torch.nn.functional.softplus(s, beta=2), "softplus with beta="),
        (lambda s, b, h, q, k: s.double(), "computes in float64"),
        (lambda s, b, h, q, k: s + torch.zeros(4).double()[h], "captured tensor of float64"),
        (lambda s, b, h, q, k: s + LOW[h, k] * 2, "mul computes in bfloat16"),
        (
            lambda s, b, h, q, k: s % 3.0,
            "remainder of float32 by anything but a plain power of two",
        ),
        (lambda s, b, h, q, k: s + torch.fmod(q, 3), "fmod of int64"),
        (lambda s, b, h, q, k: s + q // (k + 1), "floor_divide by anything but"),
        (lambda s, b, h, q, k: s**1.7, "pow with exponent 1.7"),
        (lambda s, b, h, q, k: torch.add(s, q, alpha=2), "add with alpha="),
        (lambda s, b, h, q, k: torch.stack([s, s]).sum(), "expected a pointwise score_mod"),
    ],
)
def test_a_program_beyond_the_kernels_is_refused_with_its_reason(mod: Mod, text: str) -> None:
    verdict = attention.supports(request_of(_call(mod)), probe_platform())

    assert verdict.code is ReasonCode.SCORE_MOD
    assert text in verdict.text


def test_a_request_without_its_program_is_refused() -> None:
    request = dataclasses.replace(request_of(_call(MODS["alibi"])), score_text="")

    assert "no score_text" in attention.supports(request, probe_platform()).text


def test_fake_tensors_get_the_same_verdicts() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for mod in (MODS["alibi"], lambda s, b, h, q, k: torch.erfinv(s)):
        call = _call(mod)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = dataclasses.replace(
                call,
                **{n: mode.from_tensor(getattr(call, n)) for n in ("query", "key", "value")},
            )
            got = attention.supports(request_of(fake), probe_platform())
        assert got == attention.supports(request_of(call), probe_platform())


def test_new_closures_and_lengths_keep_the_caches_bounded() -> None:
    from torchyard_cpu import _score_lowering, _score_program

    _score_lowering.lower.cache_clear()
    _score_program._encoded.cache_clear()
    forward = NativeForward("")
    for length in range(1, 41):
        slopes = torch.randn(HEADS)
        forward(
            _call(
                lambda s, b, h, q, k, slopes=slopes: s + slopes[h] * (k - q),
                q_length=length,
                kv_length=9,
            )
        )

    assert _score_lowering.lower.cache_info().currsize == 1
    assert _score_program._encoded.cache_info().currsize == 40


def test_results_have_the_same_bits_for_any_number_of_threads() -> None:
    call = _call(MODS["softcap alibi"], q_length=300)
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(NativeForward("")(call).out)

    assert all(torch.equal(a, b) for a, b in itertools.pairwise(results))
