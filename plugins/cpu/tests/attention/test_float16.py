"""float16 in every kernel: each of its numbers read and written exactly, results rounded once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard import probe_platform
from torchyard_attention.cases import CASES, Case
from torchyard_attention.testing import request_of
from torchyard_attention.tolerance import GradientRuler, Ruler, report
from torchyard_cpu import _isa, _native
from torchyard_cpu import attention as plugin
from torchyard_cpu.attention._backward import NativeBackward
from torchyard_cpu.attention._forward import NativeForward

if TYPE_CHECKING:
    from plugins.cpu.tests.conftest import Attention

ISAS = [
    isa
    for isa, needed in _isa.feature_sets().items()
    if needed <= frozenset(_native.cpu_features())
]


def _usable(table: tuple[tuple[str, str, str, tuple[str, ...]], ...]) -> list[str]:
    features = frozenset(_native.cpu_features())
    return [n for n, dtype, _, needed in table if dtype == "float16" and features >= set(needed)]


FORWARD = _usable(_native.kernels()) + _usable(_native.decode_kernels())
each_forward = pytest.mark.parametrize("kernel", FORWARD)
each_backward = pytest.mark.parametrize("kernel", _usable(_native.backward_kernels()))


def every_number() -> Tensor:
    """Return all 65536 bit patterns."""
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.half)


@pytest.fixture(params=[False, True], ids=["subnormals kept", "subnormals flushed"])
def _flush(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run with and without the processor flushing subnormal floats, which float16's are not."""
    torch.set_flush_denormal(request.param)
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("_flush")
@each_forward
def test_every_number_is_read_and_written_as_it_is(attention: Attention, kernel: str) -> None:
    # One key: its weight is exactly 1. One head of the query's per row of values.
    value = every_number().view(256, 1, 1, 256)
    query = torch.ones(256, 1, 1, 8).half()
    out = attention.run(kernel, query, query, value).out

    nan = value.isnan()
    assert torch.equal(out.isnan(), nan)
    assert torch.equal(out[~nan].view(torch.int16), (value[~nan] + 0.0).view(torch.int16))


@each_forward
def test_every_number_is_read_and_written_where_rows_end_early(
    attention: Attention, kernel: str
) -> None:
    value = every_number()[: 65536 // 13 * 13].view(-1, 1, 1, 13)
    query = torch.ones(value.shape[0], 1, 1, 8).half()
    out = attention.run(kernel, query, query, value, row_padding=2).out

    assert torch.equal(
        out.nan_to_num(7.0, math.inf, -math.inf), value.nan_to_num(7.0, math.inf, -math.inf)
    )


@pytest.mark.usefixtures("_flush")
@pytest.mark.parametrize("keys", [2, 4, 8])
@each_forward
def test_results_are_rounded_once_to_nearest_even(
    attention: Attention, kernel: str, keys: int
) -> None:
    # Equal scores: each result is the mean of neighbours, exact in float32. Of two it is the tie
    # between them, of more it lies just beside.
    numbers = every_number()
    numbers = numbers[numbers.isfinite()]
    numbers = numbers.sort().values[: numbers.numel() // 128 * 128]
    first, second = numbers.roll(1), numbers
    for of_second in range(1, keys):
        value = torch.stack([first] * (keys - of_second) + [second] * of_second)
        value = value.view(keys, -1, 128).transpose(0, 1)[:, None].contiguous()
        query = torch.zeros(value.shape[0], 1, 1, 8).half()
        out = attention.run(kernel, query, query.expand(-1, -1, keys, -1), value).out
        mean = (first.double() * (keys - of_second) + second.double() * of_second) / keys
        assert torch.equal(out.flatten(), mean.to(torch.half))


@each_backward
def test_gradients_beyond_the_largest_number_are_infinite(kernel: str) -> None:
    from plugins.cpu.tests.gradients import Forward, Problem, run

    # One key and three rows of weight 1: the value's gradient is the sum of the three.
    summands = [(6e4, 6e4, 0), (-6e4, -6e4, 0), (32752, 32752, 15), (32752, 32752, 16)]
    grad = torch.tensor(summands).half().mT.contiguous()[None, None]
    rows = torch.zeros(1, 1, 3, 8).half()
    key, value = torch.zeros(1, 1, 1, 8).half(), torch.zeros(1, 1, 1, 4).half()
    result = Forward(torch.zeros_like(grad), torch.zeros(1, 1, 3))
    got = run(kernel, Problem(rows, key, value, grad), result)[2]

    assert got.flatten().tolist() == [math.inf, -math.inf, 65504.0, math.inf]
    assert torch.equal(got.flatten(), grad.float().sum(2).flatten().half())


@pytest.mark.usefixtures("_flush")
@each_backward
def test_subnormal_gradients_are_rounded_once(kernel: str) -> None:
    from plugins.cpu.tests.gradients import Forward, Problem, run

    grad = torch.arange(-600, 600).mul(2.0**-24).half().view(1, 1, 6, 200)
    rows, key = torch.zeros(1, 1, 6, 8).half(), torch.zeros(1, 1, 2, 8).half()
    # Two keys of weight 1/2 each: sums of 6 halves of subnormals, ties among them.
    result = Forward(torch.zeros_like(grad), torch.full((1, 1, 6), math.log(2.0)))
    value = torch.zeros(1, 1, 2, 200).half()
    got = run(kernel, Problem(rows, key, value, grad), result)[2]

    exact = grad.double().sum(2, keepdim=True) / 2
    assert torch.equal(got, exact.half().expand_as(got))


@each_forward
def test_scores_beyond_the_largest_number_are_finite(attention: Attention, kernel: str) -> None:
    query = torch.full((1, 2, 3, 64), 300.0).half()
    key = torch.randint(-3, 4, (1, 1, 90, 64)).half() * 100
    value = torch.randn(1, 1, 90, 16).half()
    assert (query.float() @ key.float().mT).abs().max() > 65504

    attention.check(kernel, query, key, value, scale=1.0)


@pytest.mark.parametrize("isa", ISAS)
def test_an_instruction_set_without_float16_leaves_it_to_the_next(isa: str) -> None:
    forward, backward = NativeForward(isa), NativeBackward(isa)
    expected = {"amx": "avx512", "avx512bf16": "avx512", "neonbf16": "neon"}.get(isa, isa)

    for kernels in (forward._kernels, forward._decode_kernels, backward._kernels):
        name, like_float32 = kernels[torch.half][0], kernels[torch.float32][0]
        assert name.rpartition("_")[2] == like_float32.rpartition("_")[2] == expected


SIZES = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 2),
        "kv_heads": st.integers(1, 2),
        "q_length": st.integers(1, 150),
        "kv_length": st.integers(1, 200),
        "head_dim": st.integers(1, 130),
        "value_dim": st.integers(1, 130),
        "block_size": st.sampled_from([(128, 128), (16, 24), (64, 200)]),
        "scale": st.sampled_from([None, 0.05, -0.4, 2.0]),
    }
)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    sizes=SIZES,
    group=st.integers(1, 3),
    mask=st.sampled_from(["", "causal", "window", "random", "empty_rows"]),
    score=st.sampled_from(["", "alibi", "softcap"]),
    layout=st.sampled_from(["contiguous", "transposed", "expanded"]),
)
def test_any_call_is_within_the_ruler(
    sizes: dict[str, object], group: int, mask: str, score: str, layout: str, isa: str
) -> None:
    every = {**sizes, "dtype": torch.half, "q_heads": group * int(str(sizes["kv_heads"]))}
    call = Case("any", every, mask, score, layout).call()
    request = request_of(call)
    assert plugin.supports(request, probe_platform(), isa=isa).supported

    result = NativeForward(isa)(call)
    assert not report(Ruler(call).compare(result))
    if plugin.supports_backward(request, probe_platform(), isa=isa).supported:
        assert result.lse is not None
        generator = torch.Generator().manual_seed(0)
        grad_out = torch.randn(result.out.shape, generator=generator).half()
        grad_lse = torch.randn(result.lse.shape, generator=generator)
        gradients = NativeBackward(isa)(call, result.out, result.lse, grad_out, grad_lse)
        assert not report(GradientRuler(call, grad_out, grad_lse).compare(gradients))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("float16")])
def test_the_cases_of_every_implementation_are_within_the_ruler(name: str, isa: str) -> None:
    call = CASES[name].call()

    assert not report(Ruler(call).compare(NativeForward(isa)(call)))
