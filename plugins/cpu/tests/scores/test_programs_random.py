"""Random score programs against the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchyard import probe_platform
from torchyard_attention import reference
from torchyard_attention.implementations._tiled_backward import tiled_backward
from torchyard_attention.testing import make_call, request_of
from torchyard_cpu import _isa, _native, attention
from torchyard_cpu.attention._backward import NativeBackward
from torchyard_cpu.attention._forward import NativeForward

ISAS = [
    isa
    for isa, needed in _isa.feature_sets().items()
    if needed <= frozenset(_native.cpu_features())
]
ROWS, KEYS = 21, 90
TABLE = torch.linspace(-2, 2, 50)
PAIRS = torch.linspace(-1, 1, 7 * 9).view(7, 9)
GROUPS = torch.arange(100) // 13
BYTES = (torch.arange(100) % 5).to(torch.uint8)

Expression = Callable[..., Any]


def _integer(leaf: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    constants = st.integers(-9, 9)
    divisors = st.integers(-7, 7).filter(bool)
    return st.one_of(
        st.builds(lambda x, y: lambda *i: x(*i) + y(*i), leaf, leaf),
        st.builds(lambda x, y: lambda *i: x(*i) - y(*i), leaf, leaf),
        st.builds(lambda x, y: lambda *i: x(*i) * y(*i), leaf, leaf),
        st.builds(lambda x, c: lambda *i: x(*i) * c, leaf, constants),
        st.builds(lambda x, c: lambda *i: x(*i) // c, leaf, divisors),
        st.builds(lambda x, c: lambda *i: x(*i) % c, leaf, divisors),
        st.builds(lambda x: lambda *i: abs(x(*i)), leaf),
        st.builds(lambda x, y: lambda *i: torch.maximum(x(*i), y(*i)), leaf, leaf),
        st.builds(lambda x: lambda *i: GROUPS[torch.clamp(x(*i), 0, 99)], leaf),
        st.builds(lambda x: lambda *i: BYTES[x(*i) % 100].to(torch.int64), leaf),
        st.builds(lambda x, y: lambda *i: x(*i) ^ y(*i), leaf, leaf),
        st.builds(
            lambda x, y, z: lambda *i: torch.where(x(*i) < y(*i), z(*i), y(*i)), leaf, leaf, leaf
        ),
    )


INDICES: st.SearchStrategy[Expression] = st.sampled_from(
    [
        lambda s, b, h, q, k: b,
        lambda s, b, h, q, k: h,
        lambda s, b, h, q, k: q,
        lambda s, b, h, q, k: k,
        lambda s, b, h, q, k: q - k,
    ]
)
INTEGERS = st.recursive(INDICES, _integer, max_leaves=5)


def _float(leaf: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.builds(lambda x, y: lambda *i: x(*i) + y(*i), leaf, leaf),
        st.builds(lambda x, y: lambda *i: x(*i) - y(*i), leaf, leaf),
        st.builds(lambda x, y: lambda *i: x(*i) * torch.sigmoid(y(*i)), leaf, leaf),
        st.builds(lambda x, y: lambda *i: x(*i) / (y(*i).abs() + 1), leaf, leaf),
        st.builds(lambda x: lambda *i: 3 * torch.tanh(x(*i) / 3), leaf),
        st.builds(lambda x: lambda *i: torch.log(x(*i).abs() + 1), leaf),
        st.builds(lambda x: lambda *i: torch.sqrt(x(*i) * x(*i) + 1), leaf),
        st.builds(lambda x, y: lambda *i: torch.minimum(x(*i), y(*i)), leaf, leaf),
        st.builds(
            lambda x, y, n: lambda *i: torch.where(n(*i) % 3 == 1, x(*i), y(*i)),
            leaf,
            leaf,
            INTEGERS,
        ),
    )


FLOATS = st.recursive(
    st.one_of(
        st.just(lambda s, b, h, q, k: s),
        st.builds(lambda n: lambda *i: (n(*i) % 64) * 0.03, INTEGERS),
        st.builds(lambda n: lambda *i: TABLE[torch.clamp(n(*i), -50, 49)], INTEGERS),
        st.builds(lambda n: lambda *i: TABLE[n(*i) % 50], INTEGERS),
        st.builds(lambda m, n: lambda *i: PAIRS[m(*i) % 7, n(*i) % 9], INTEGERS, INTEGERS),
    ),
    _float,
    max_leaves=6,
)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(mod=FLOATS)
def test_a_random_program_gives_what_torch_gives(mod: Expression, isa: str) -> None:
    call = make_call(
        batch=2, q_heads=2, kv_heads=1, q_length=ROWS, kv_length=KEYS, head_dim=8, score_mod=mod
    )
    if call.score_mod is None or call.score_mod.text == '"s"':
        return
    verdict = attention.supports(request_of(call), probe_platform())
    assert verdict.supported, verdict.text
    got, true = NativeForward(isa)(call), reference.reference_forward(call)

    torch.testing.assert_close(got.lse, true.lse, rtol=5e-5, atol=5e-5)
    torch.testing.assert_close(got.out, true.out, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
@given(mod=FLOATS)
def test_the_gradients_of_a_random_program_are_those_that_torch_gives(
    mod: Expression, isa: str
) -> None:
    call = make_call(
        batch=2, q_heads=2, kv_heads=1, q_length=ROWS, kv_length=KEYS, head_dim=8, score_mod=mod
    )
    if call.score_mod is None or call.score_mod.text == '"s"':
        return
    verdict = attention.supports_backward(request_of(call, grad=True), probe_platform())
    assert verdict.supported, verdict.text
    result = NativeForward(isa)(call)
    assert result.lse is not None
    given = (call, result.out, result.lse, torch.cos(result.out), torch.sin(result.lse))
    got, true = NativeBackward(isa)(*given), tiled_backward(*given)

    pairs = [(getattr(got, name), getattr(true, name)) for name in ("query", "key", "value")]
    for ours, theirs in [*pairs, *zip(got.captured, true.captured, strict=True)]:
        assert (ours is None) == (theirs is None)
        if ours is not None:
            size = max(1.0, float(theirs.abs().max()))
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-4 * size)
