"""score_mod inside cpu.native: what kernels make of programs, against the reference."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch

from plugins.cpu.tests.score_mods import (
    BIAS,
    HALF,
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
from torchyard_attention import reference
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.testing import request_of
from torchyard_cpu import _isa, _native, attention
from torchyard_cpu.attention._forward import NativeForward

ISAS = [
    isa
    for isa, needed in _isa.feature_sets().items()
    if needed <= frozenset(_native.cpu_features())
]


def _assert_as_reference(call: AttentionCall, got: AttentionResult, isa: str) -> None:
    exact = dataclasses.replace(
        call, **{name: getattr(call, name).float() for name in ("query", "key", "value")}
    )
    true = reference.reference_forward(exact)
    assert true.lse is not None
    assert got.lse is not None
    torch.testing.assert_close(got.lse, true.lse, rtol=2e-5, atol=2e-5)
    # bfloat16: one rounding of each probability where pairs are multiplied, and one of the result;
    # float16: of the result alone.
    bound = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}.get(call.query.dtype, 3e-5)
    torch.testing.assert_close(got.out.float(), true.out, rtol=bound, atol=bound)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("q_length", [ROWS, 1, 8], ids=["long", "one", "eight"])
@pytest.mark.parametrize("name", MODS)
def test_a_program_gives_what_torch_gives(
    name: str, q_length: int, dtype: torch.dtype, isa: str
) -> None:
    call = score_call(MODS[name], dtype=dtype, q_length=q_length)

    verdict = attention.supports(request_of(call), probe_platform(), isa=isa)
    assert verdict.supported, verdict.text
    _assert_as_reference(call, NativeForward(isa)(call), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "name", ["alibi", "bias", "documents", "gather of pairs", "table of table"]
)
@pytest.mark.parametrize("block_size", [(128, 128), (16, 24)], ids=str)
@pytest.mark.parametrize("q_length", [ROWS, 8], ids=["long", "eight"])
def test_masks_come_after_the_program(
    name: str, q_length: int, block_size: tuple[int, int], isa: str
) -> None:
    q, k = torch.arange(q_length)[:, None], torch.arange(KEYS)
    call = score_call(
        MODS[name],
        q_length=q_length,
        visible=(q + 60 >= k) & (q - k < 40) & (q % 7 != 3) & (k % 9 != 2),
        block_size=block_size,
    )

    _assert_as_reference(call, NativeForward(isa)(call), isa)


@pytest.mark.parametrize("isa", ISAS)
def test_what_a_program_makes_of_hidden_pairs_reaches_nothing(isa: str) -> None:
    q, k = torch.arange(ROWS)[:, None], torch.arange(KEYS)
    call = score_call(lambda s, b, h, q, k: s / torch.sqrt((q - k + 1) * 1.0), visible=q >= k)

    _assert_as_reference(call, NativeForward(isa)(call), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("q_length", "kv_length"), [(1, 1), (1, 257), (7, 64), (129, 65), (6, 1200), (0, 5), (5, 0)]
)
def test_lengths_about_the_edges_of_tiles(q_length: int, kv_length: int, isa: str) -> None:
    table = torch.randn(2000)
    call = score_call(
        lambda s, b, h, q, k: s + table[q - k + kv_length] + table[k] * table[q],
        q_length=q_length,
        kv_length=kv_length,
    )

    _assert_as_reference(call, NativeForward(isa)(call), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("q_length", [ROWS, 8], ids=["long", "eight"])
def test_nan_and_plus_infinity_make_their_row_nan_and_no_other(
    q_length: int, value: float, isa: str
) -> None:
    call = score_call(
        lambda s, b, h, q, k: torch.where((q == 5) & (k == 100), value, s), q_length=q_length
    )
    got = NativeForward(isa)(call)

    assert got.out[:, :, 5].isnan().all()
    others = [row for row in range(q_length) if row != 5]
    plain = NativeForward(isa)(dataclasses.replace(call, score_mod=None))
    torch.testing.assert_close(got.out[:, :, others], plain.out[:, :, others])


@pytest.mark.parametrize("isa", ISAS)
def test_scores_near_the_limits_of_float32_are_told_apart_over_many_splits(isa: str) -> None:
    # Of all keys but some, the lowest number there is; of a row, of all of them.
    low = torch.finfo(torch.float32).min
    call = score_call(
        lambda s, b, h, q, k: torch.where((q == 2) | (k % 700 != 3), low, s + 1e30 * (k // 700)),
        q_length=3,
        kv_length=1500,
    )
    got = NativeForward(isa)(call)
    group = call.query.shape[1] // call.key.shape[1]
    value = call.value.repeat_interleave(group, dim=1)
    torch.testing.assert_close(got.out[:, :, :2], value[:, :, 1403:1404].expand(-1, -1, 2, -1))
    even = value.mean(dim=2)
    torch.testing.assert_close(got.out[:, :, 2], even, atol=1e-5, rtol=1e-5)
    assert got.lse is not None
    assert (got.lse[:, :, 2] == low).all()


@pytest.mark.parametrize("isa", ISAS)
def test_the_greatest_modified_scores_of_few_rows_are_returned(isa: str) -> None:
    call = dataclasses.replace(
        score_call(MODS["alibi"], q_length=2, kv_length=1200), max_scores=True
    )
    true = reference.reference_forward(call)
    got = NativeForward(isa)(call)
    assert got.max_scores is not None
    assert true.max_scores is not None
    torch.testing.assert_close(got.max_scores, true.max_scores, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("q_length", [ROWS, 8], ids=["long", "eight"])
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
def test_an_index_out_of_range_is_an_error(mod: Mod, text: str, q_length: int, isa: str) -> None:
    with pytest.raises(IndexError, match=text):
        NativeForward(isa)(score_call(mod, q_length=q_length))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("q_length", [ROWS, 8], ids=["long", "eight"])
def test_an_index_out_of_range_of_a_hidden_pair_is_none(q_length: int, isa: str) -> None:
    table = torch.arange(40.0)
    padded = torch.cat([table, torch.zeros(400)])
    q, k = torch.arange(q_length)[:, None], torch.arange(KEYS)
    given = {"q_length": q_length, "visible": (q >= k) & (q - k < 40)}
    got = NativeForward(isa)(score_call(lambda s, b, h, q, k: s + table[q - k], **given))
    wanted = NativeForward(isa)(score_call(lambda s, b, h, q, k: s + padded[q - k], **given))

    torch.testing.assert_close(got.out, wanted.out, rtol=0, atol=0)


def _takes_no_alpha() -> bool:
    """Return whether the installed torch infers the result, as it does for a recording."""
    try:
        torch.nn.functional.celu(torch.zeros(1, device="meta"), -0.0)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize(
    ("mod", "text"),
    [
        (lambda s, b, h, q, k: torch.erfinv(s), "score_mod: has no erfinv"),
        (lambda s, b, h, q, k: torch.round(s, decimals=1), "round with decimals="),
        (lambda s, b, h, q, k: torch.nn.functional.softplus(s, beta=0), "softplus with beta=0"),
        pytest.param(
            lambda s, b, h, q, k: torch.nn.functional.celu(s, -0.0),
            "celu with alpha=0",
            marks=pytest.mark.skipif(not _takes_no_alpha(), reason="this torch refuses it"),
        ),
        (lambda s, b, h, q, k: s.double(), "computes in float64"),
        (lambda s, b, h, q, k: s + torch.zeros(4).double()[h], "captured tensor of float64"),
        (lambda s, b, h, q, k: s + LOW[h, k] * 2, "mul computes in bfloat16"),
        (lambda s, b, h, q, k: s + HALF[h, q, k] * 2, "mul computes in float16"),
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
    verdict = attention.supports(request_of(score_call(mod)), probe_platform())

    assert verdict.code is ReasonCode.SCORE_MOD
    assert text in verdict.text


def test_a_request_without_its_program_is_refused() -> None:
    request = dataclasses.replace(request_of(score_call(MODS["alibi"])), score_text="")

    assert "no score_text" in attention.supports(request, probe_platform()).text


def test_fake_tensors_get_the_same_verdicts() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for mod in (MODS["alibi"], lambda s, b, h, q, k: torch.erfinv(s)):
        call = score_call(mod)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = dataclasses.replace(
                call,
                **{n: mode.from_tensor(getattr(call, n)) for n in ("query", "key", "value")},
            )
            got = attention.supports(request_of(fake), probe_platform())
        assert got == attention.supports(request_of(call), probe_platform())


def test_new_closures_and_lengths_keep_the_caches_bounded() -> None:
    from torchyard_cpu._programs import lowering
    from torchyard_cpu.attention import _score_program

    lowering.lower.cache_clear()
    _score_program.encoded_score.cache_clear()
    forward = NativeForward("")
    for length in range(1, 41):
        slopes = torch.randn(HEADS)
        forward(
            score_call(
                lambda s, b, h, q, k, slopes=slopes: s + slopes[h] * (k - q),
                q_length=length,
                kv_length=9,
            )
        )

    assert lowering.lower.cache_info().currsize == 1
    assert _score_program.encoded_score.cache_info().currsize == 40


@pytest.mark.parametrize(("q_length", "kv_length"), [(300, KEYS), (2, 3000)])
def test_results_have_the_same_bits_for_any_number_of_threads(
    q_length: int, kv_length: int
) -> None:
    call = score_call(MODS["softcap alibi"], q_length=q_length, kv_length=kv_length)
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(NativeForward("")(call).out)

    assert all(torch.equal(a, b) for a, b in itertools.pairwise(results))
