"""Products in Metal are as near to float64 as a naive computation, and have no finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plugins.mps.tests.emulated import emulated
from torchyard import ReasonCode, Registry, read_platform_file
from torchyard_kernels import PackedWeight
from torchyard_kernels.linear._formats.table import unpacked
from torchyard_kernels.linear._functions.function import record
from torchyard_kernels.linear.contract import LINEAR, LinearCall, LinearRequest
from torchyard_mps.implementations import torchyard_implementations
from torchyard_mps.implementations._linear import supports_linear
from torchyard_mps.linear import _product, multiply, product


def _normal(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _computed(call: LinearCall, dtype: torch.dtype) -> Tensor:
    """Return a call's result by torch, each step in a dtype, a prologue's rounded to x's."""
    x = call.x.to(dtype)
    if call.prologue is not None:
        x = call.prologue.apply(x).to(call.x.dtype).to(dtype)
    y = _naive_product(x, unpacked(call.weight).to(dtype))
    y = y if call.bias is None else y + call.bias.to(dtype)
    if call.epilogue is None:
        return y
    return call.epilogue.apply(*(y.chunk(2, -1) if call.gated else (y,)))


def _naive_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x @ weight.mT``; of float32 term by term, which torch's blocked sums are not.

    What a textbook's loop gives in float32 is up to four times as far from float64 as torch's.
    """
    if x.dtype != torch.float32:
        return x @ weight.mT
    y = torch.zeros((*x.shape[:-1], weight.shape[-2]))
    for place in range(x.shape[-1]):
        y = y + x[..., place, None] * weight[..., None, :, place]
    return y


def _excess(call: LinearCall, **options: Any) -> float:
    """Return the greatest error over its bound: twice the naive error, and a rounding."""
    with emulated(**options):
        out = multiply(call)
    assert out.shape == call.result_shape()
    wanted = call.x.dtype if call.epilogue is None else call.epilogue.dtype(call.x.dtype)
    assert out.dtype == wanted
    assert out.is_contiguous()
    if not out.numel():
        return 0.0
    exact, naive = _computed(call, torch.float64), _computed(call, call.x.dtype).double()
    finfo = torch.finfo(out.dtype)
    bound = 2 * (naive - exact).abs().max() + finfo.smallest_normal
    bound = bound + finfo.eps * (exact.abs() + exact.abs().max() / 64)
    error = (out.double() - exact).abs() / bound
    return float(error.nan_to_num(nan=torch.inf).max())


_LAYOUTS: Final[dict[str, Callable[[Tensor], Any]]] = {
    "plain": lambda weight: weight,
    "transposed": lambda weight: weight.t().contiguous().t(),
    "panels": lambda weight: PackedWeight(weight).packed,
    "int8": lambda weight: PackedWeight(weight, format="int8").packed,
    "int8-groups": lambda weight: PackedWeight(weight, format="int8", group=32).packed,
    "int4": lambda weight: PackedWeight(weight, format="int4", group=0).packed,
    "int4-groups": lambda weight: (
        PackedWeight(weight, format="int4", group=32, asymmetric=1).packed
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", _LAYOUTS)
def test_each_form_of_a_weight(layout: str, dtype: torch.dtype) -> None:
    weight = _LAYOUTS[layout](_normal(67, 45, dtype=dtype))
    call = LinearCall(_normal(3, 45, dtype=dtype, seed=1), weight, _normal(67, dtype=dtype))
    assert _excess(call) <= 1


@st.composite
def _calls(draw: st.DrawFn, most: int) -> LinearCall:
    rows, outputs, depth = (draw(st.integers(0, size)) for size in (most // 2, most, 2 * most))
    dtype = draw(st.sampled_from([torch.float16, torch.float32]))
    layouts = list(_LAYOUTS) if outputs and depth else ["plain"]
    weight = _LAYOUTS[draw(st.sampled_from(layouts))](_normal(outputs, depth, dtype=dtype))
    x = _normal(rows, depth, dtype=dtype, seed=1)
    shown = {
        "plain": x,
        "transposed": x.t().contiguous().t(),
        "batched": torch.stack([x, x + 1], 1).transpose(0, 1),
    }[draw(st.sampled_from(["plain", "transposed", "batched"]))]
    bias = _normal(outputs, dtype=dtype, seed=2) if draw(st.booleans()) else None
    return LinearCall(shown, weight, bias)


@settings(max_examples=6)
@given(call=_calls(70))
def test_sizes(call: LinearCall) -> None:
    assert _excess(call) <= 1


@pytest.mark.sweep
@settings(max_examples=100)
@given(call=_calls(140))
def test_many_sizes(call: LinearCall) -> None:
    assert _excess(call) <= 1


def test_batches_have_weights_of_their_own() -> None:
    call = LinearCall(_normal(3, 5, 40, seed=1), _normal(3, 33, 40).transpose(0, 1).transpose(0, 1))
    assert _excess(call) <= 1


def test_a_product_is_rounded_once_to_another_dtype() -> None:
    call = replace(_CALL, bias=None)
    with emulated():
        wide, narrow = product(call, torch.float32), multiply(call)
    assert wide.dtype == torch.float32
    assert torch.equal(wide.half(), narrow)
    exact = _computed(call, torch.float64)
    assert (wide.double() - exact).abs().max() < 1e-5 * exact.abs().max()


def test_rows_do_not_affect_one_another() -> None:
    x = _normal(5, 40, seed=1)
    x[2] = torch.nan
    call = LinearCall(x, _normal(33, 40))
    with emulated():
        out = multiply(call)
    assert out[2].isnan().all()
    assert out[[0, 1, 3, 4]].isfinite().all()


_CALL: Final = LinearCall(_normal(35, 45, seed=1), _normal(33, 45), _normal(33, seed=2))
_INT4: Final = replace(_CALL, weight=_LAYOUTS["int4-groups"](_normal(67, 70)))
_INT4_CALL: Final = replace(_INT4, x=_normal(3, 70, seed=1), bias=None)
_INT8_CALL: Final = replace(_INT4_CALL, weight=_LAYOUTS["int8"](_normal(67, 70)))


def test_orders_of_threads_change_nothing() -> None:
    assert _excess(_CALL, orders=3, address_sanitizer=True) <= 1


_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], str, bool]]] = {
    "gelu": (torch.nn.functional.gelu, "epilogue", False),
    "float32": (lambda y: y.float() * 2 - 1, "epilogue", False),
    "swiglu": (lambda gate, up: torch.nn.functional.silu(gate) * up, "epilogue", True),
    # Of 0 it is not 0, and what is beyond the depth is no product.
    "shifted": (lambda x: torch.cos(x) + 1.0, "prologue", False),
}


def _with(*names: str, **changes: Any) -> LinearCall:
    functions: dict[str, Any] = {}
    for name in names:
        function, role, gated = _FUNCTIONS[name]
        functions[role] = record(function, role, gated, _CALL.x)
    call = LinearCall(_normal(3, 45, seed=1), _normal(38, 45), _normal(38, seed=2))
    return replace(call, **functions, **changes)


# What is planted, the call that shows it, and the finding that names it; empty: its values.
_MUTANTS: Final[list[tuple[str, str, LinearCall, str]]] = [
    ("row < row_count && k < depth", "row <= row_count && k < depth", _CALL, "out-of-bounds"),
    ("n < outputs && k < depth", "n < outputs && k <= depth", _CALL, "out-of-bounds"),
    ("row >= row_count ||", "", _CALL, "out-of-bounds"),
    ("x[row * sizes[kX + 1] + k", "x[row + k", _CALL, ""),
    ("float(code - zero)", "float(code)", _INT8_CALL, ""),
    ("(k / 4 % 2 * 4)", "(k % 2 * 4)", _INT4_CALL, ""),
    ("k / max(GROUP, 1)", "0", _INT4_CALL, ""),
    ("int(zeros[place])", "8", _INT4_CALL, ""),
    ("n / 64 * sizes[kGroups] + group", "n / 64 + group", _INT4_CALL, ""),
    ("float(bias[n])", "float(bias[0])", _CALL, ""),
    ("batch, n + outputs, k)", "batch, n, k)", _with("swiglu"), ""),
    (
        "    threadgroup_barrier(mem_flags::mem_threadgroup);\n    for (int of",
        "    for (int of",
        _CALL,
        "missing-barrier",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "call", "finding"), _MUTANTS)
def test_mutant_is_caught(
    right: str, wrong: str, call: LinearCall, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _product.metal_text("linear")
    assert right in source
    monkeypatch.setattr(_product, "metal_text", lambda *_: source.replace(right, wrong))
    if finding:
        with pytest.raises(AssertionError, match=f"{finding}:"):
            _excess(call)
    else:
        assert _excess(call) > 1


def test_verdicts() -> None:
    machine = read_platform_file("m3").platform
    request = LinearRequest("mps", "float16", 16, 4096, 4096)
    assert supports_linear(request, machine).supported
    assert supports_linear(replace(request, weight="int4"), machine).supported
    rounded = replace(request, weight="int8", weight_options=(("activation", 8),))
    for other, code in (
        (replace(request, dtype="float64"), ReasonCode.DTYPE),
        (replace(request, weight="other"), ReasonCode.LAYOUT),
        (rounded, ReasonCode.LAYOUT),
        (replace(request, device="cpu"), ReasonCode.DEVICE),
    ):
        assert supports_linear(other, machine).code == code
    enlisted = Registry(platform=machine, environ={"TORCHYARD_ENLIST": "mps.metal"})
    assert enlisted.decide(LINEAR, replace(request, weight="int4")).name == "mps.metal"


@pytest.mark.parametrize("names", [("gelu",), ("float32",), ("swiglu",), ("shifted",)], ids=str)
def test_functions(names: tuple[str, ...]) -> None:
    assert _excess(_with(*names)) <= 1


def test_functions_of_a_packed_weight() -> None:
    weight = _LAYOUTS["int4-groups"](_normal(38, 45))
    assert _excess(_with("shifted", "swiglu", weight=weight)) <= 1


def test_functions_that_capture_tensors_are_refused() -> None:
    column = _normal(33)
    function = record(lambda y: y + column, "epilogue", False, _CALL.x)
    call = replace(_CALL, epilogue=function)
    with pytest.raises(ValueError, match="epilogue: expected a function that captures no tensors"):
        multiply(call)
    request = replace(call.request(), device="mps")
    verdict = supports_linear(request, read_platform_file("m3").platform)
    assert verdict.code == ReasonCode.OTHER
    assert "captures no tensors" in verdict.text


def test_float64_of_a_function_is_refused() -> None:
    function = record(lambda y: torch.tanh(y.double()).float(), "epilogue", False, _CALL.x)
    call = replace(_CALL, epilogue=function)
    verdict = supports_linear(
        replace(call.request(), device="mps"), read_platform_file("m3").platform
    )
    assert "tanh of float64" in verdict.text


def test_what_the_hook_loads_computes() -> None:
    (offered,) = torchyard_implementations(contract=LINEAR)
    with emulated():
        out = offered.load()(_CALL)
    torch.testing.assert_close(out, _computed(_CALL, torch.float64).half(), rtol=2e-3, atol=2e-3)
