"""Each word that kernels compute by several operations, against float64 and torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from torchyard import probe_platform
from torchyard_attention import AuxRequest, explain, flex_attention
from torchyard_attention.testing import make_call, request_of
from torchyard_cpu import _isa, _native, attention
from torchyard_cpu._programs.composed import BINARY, UNARY
from torchyard_cpu.attention._forward import NativeForward

Function = Callable[..., Tensor]

ISAS = [
    isa
    for isa, needed in _isa.feature_sets().items()
    if needed <= frozenset(_native.cpu_features())
]


def _function(word: str) -> Function:
    owner = next(owner for owner in (torch, functional) if hasattr(owner, word))
    function: Function = getattr(owner, word)
    return function


# These choose or cut off and round nothing: torch's float32 to the bit.
EXACT: dict[str, Function] = {
    **{
        word: _function(word)
        for word in ("fmax", "fmin", "frac", "relu6", "round", "sgn", "sign", "trunc")
    },
    "hardshrink": functional.hardshrink,
    "hardshrink to 2": lambda x: functional.hardshrink(x, lambd=2.0),
    "hardshrink to less than 0": lambda x: functional.hardshrink(x, -1.0),
    "hardtanh": functional.hardtanh,
    "hardtanh from -2 to 3": lambda x: functional.hardtanh(x, -2.0, 3.0),
    "leaky_relu": functional.leaky_relu,
    "leaky_relu that falls": lambda x: functional.leaky_relu(x, -0.5),
    "nan_to_num": torch.nan_to_num,
    "softshrink": functional.softshrink,
    "softshrink by 2": lambda x: functional.softshrink(x, 2.0),
    "threshold": lambda x: functional.threshold(x, 0.25, -7.0),
    "fmod by 2": lambda x: torch.fmod(x, 2.0),
    "remainder by 2": lambda x: torch.remainder(x, 2.0),
    "remainder by 1/8": lambda x: x % 0.125,
}
CLOSE: dict[str, Function] = {
    **{word: _function(word) for word in (UNARY | BINARY) if word not in EXACT},
    "celu": functional.celu,
    "celu of 2": lambda x: functional.celu(x, alpha=2.0),
    "elu": functional.elu,
    "elu of 1/2": lambda x: functional.elu(x, 0.5),
    "selu": functional.selu,
    "softplus": functional.softplus,
    "softplus of 1/2": lambda x: functional.softplus(x, beta=0.5),
    "softplus of 2 up to 5": lambda x: functional.softplus(x, 2.0, 5.0),
    "rsqrt": torch.rsqrt,
    "power of -1/2": lambda x: x**-0.5,
    "gelu with tanh": lambda x: functional.gelu(x, approximate="tanh"),
}

# Steps of a half, where rounding chooses; both sides of changes of formula; tails.
GRID = torch.cat(
    [
        torch.arange(-40, 41) / 4,
        torch.linspace(-1.01, 1.01, 203),
        torch.linspace(-20, 20, 161),
        torch.tensor([2.0**e for e in range(-40, 24)]),
        torch.tensor([-(2.0**e) for e in range(-40, 24)]),
        torch.tensor([8388607.5, 8388608.0, 16777217.0, -8388607.5, 3e9, -3e9, 1e30, -1e30, 88.5]),
    ]
)


def native(function: Function, values: tuple[Tensor, ...], isa: str) -> Tensor:
    """Return what the kernels make of a function: the only score of a row is its log-sum-exp."""
    rows = values[0].numel()
    call = make_call(
        batch=1,
        q_heads=1,
        q_length=rows,
        kv_length=1,
        head_dim=1,
        score_mod=lambda s, b, h, q, k: function(*(x[q] for x in values)) + 0 * s,
    )
    verdict = attention.supports(request_of(call), probe_platform(), isa=isa)
    assert verdict.supported, verdict.text
    lse = NativeForward(isa)(call).lse
    assert lse is not None
    return lse.view(rows)


def _arguments(word: str, values: Tensor) -> tuple[Tensor, ...]:
    if word not in BINARY:
        return (values,)
    return values, values.roll(3)


def _in_range(function: Function, values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Leave out where the result is no finite score, and denormal floats, which are flushed."""
    exact = function(*(x.double() for x in values))
    kept = exact.isfinite() & (exact.abs() < 1e37)
    kept &= (exact == 0) | (exact.abs() > 1e-30)
    return tuple(x[kept] for x in values)


def _check(word: str, function: Function, values: Tensor, isa: str) -> None:
    arguments = _in_range(function, _arguments(word, values))
    if arguments[0].numel() == 0:
        return
    got = native(function, arguments, isa)
    if word in EXACT:
        assert torch.equal(got, function(*arguments))
        return
    exact = function(*(x.double() for x in arguments))
    # A few roundings of the result; of the argument where a sum in float32 cancels, as in torch.
    size = torch.stack([x.abs() for x in arguments]).amax(0).double()
    wrong = (got.double() - exact).abs() > 1e-6 * exact.abs() + 3e-7 * size.clamp(max=100)
    assert not wrong.any(), (
        f"{word}: {[x[wrong][:3].tolist() for x in arguments]} gave {got[wrong][:3].tolist()}, "
        f"expected {exact[wrong][:3].tolist()}"
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("word", [*EXACT, *CLOSE])
def test_a_word_is_torchs_on_a_grid(word: str, isa: str) -> None:
    _check(word, {**EXACT, **CLOSE}[word], GRID, isa)


@pytest.mark.parametrize("word", [*EXACT, *CLOSE])
@settings(max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))
# Subnormal numbers may count as 0.
@given(
    values=st.lists(
        st.floats(-(2.0**40), 2.0**40, width=32, allow_subnormal=False), min_size=1, max_size=30
    )
)
def test_a_word_is_torchs_on_any_numbers(word: str, values: list[float]) -> None:
    _check(word, {**EXACT, **CLOSE}[word], torch.tensor(values), "")


@pytest.mark.parametrize("word", [*EXACT, *CLOSE])
def test_the_derivative_of_a_word_is_torchs(word: str) -> None:
    function = {**EXACT, **CLOSE}[word]
    # Corners are apart from these, tails and both sides of changes of formula are among them.
    values = torch.cat([torch.linspace(-9.97, 9.98, 333), torch.tensor([-80.03, 87.01, 3e-7, 1e5])])
    arguments = tuple(x.requires_grad_() for x in _in_range(function, _arguments(word, values)))
    exact = [x.detach().double().requires_grad_() for x in arguments]
    rows = arguments[0].numel()
    query = torch.zeros(1, 1, rows, 1)
    key = torch.zeros(1, 1, 1, 1)

    def score_mod(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return function(*(x[q] for x in arguments)) + 0 * s

    decision = explain(query, key, key, score_mod, backward=True)
    _, aux = flex_attention(query, key, key, score_mod, return_aux=AuxRequest(lse=True))
    found = torch.autograd.grad(aux.lse.sum(), arguments)
    wanted = torch.autograd.grad(function(*exact).sum(), exact)

    assert decision.name == "cpu.native"
    for mine, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("word", "value", "expected"),
    [
        ("erf", math.inf, 1.0),
        ("erf", -math.inf, -1.0),
        ("expm1", -math.inf, -1.0),
        ("softplus", -math.inf, 0.0),
        ("elu", -math.inf, -1.0),
        ("sign", math.nan, 0.0),
        ("sign", -math.inf, -1.0),
        ("hardsigmoid", math.inf, 1.0),
        ("relu6", math.inf, 6.0),
        ("hardtanh", -math.inf, -1.0),
        ("leaky_relu", -math.inf, -math.inf),
        ("softshrink", -math.inf, -math.inf),
        ("celu", -math.inf, -1.0),
        ("nan_to_num", math.nan, 0.0),
        ("isfinite", math.inf, 0.0),
        ("isfinite", math.nan, 0.0),
        ("isfinite", -3.0, 1.0),
        ("isposinf", math.inf, 1.0),
        ("isposinf", -math.inf, 0.0),
    ],
)
def test_what_infinities_and_nan_give(word: str, value: float, expected: float) -> None:
    values = torch.tensor([value])
    assert float(_function(word)(values)) == expected
    assert float(native(_function(word), (values,), "")[0]) == expected


@pytest.mark.parametrize(
    "word",
    "elu erf gelu hardshrink hardtanh leaky_relu log1p round selu softplus trunc".split(),
)
def test_nan_stays_nan(word: str) -> None:
    assert native(_function(word), (torch.tensor([math.nan]),), "").isnan().all()


@pytest.mark.parametrize(
    "mod",
    [
        lambda s, b, h, q, k: s + torch.sign(q - k) * 0.5,
        lambda s, b, h, q, k: s + torch.round(q) + torch.trunc(k),
        lambda s, b, h, q, k: torch.fmax(s, q * 0.1) + functional.gelu(s) + torch.erf(q - k),
    ],
    ids=["sign", "rounding", "mixed"],
)
def test_words_of_integers_and_mixtures(mod: Callable[..., Any]) -> None:
    from torchyard_attention import reference

    call = make_call(q_length=20, kv_length=33, head_dim=8, score_mod=mod)
    got, true = NativeForward("")(call), reference.reference_forward(call)
    torch.testing.assert_close(got.lse, true.lse, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(got.out, true.out, rtol=3e-5, atol=3e-5)
