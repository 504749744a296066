"""Products are as near to float64 as a naive computation in the call's dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from packages.triton.tests.ops.mutation import mutated
from torchyard import Platform, ReasonCode, read_platform_file
from torchyard_kernels import PackedWeight
from torchyard_kernels.linear._formats.table import unpacked
from torchyard_kernels.linear._functions.function import Recorded, record
from torchyard_kernels.linear.contract import LinearCall, LinearRequest
from torchyard_triton import Vendor, implementations
from torchyard_triton.linear import LinearTiles, multiply

_ROOM = "torchyard_triton.device.linear"
_TILES = LinearTiles(16, 32, 32)


def _normal(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _computed(call: LinearCall, dtype: torch.dtype) -> Tensor:
    """Return a call's result by torch, each step in a dtype, a prologue's rounded to x's."""
    x, weight = call.x, unpacked(call.weight).to(dtype)
    if call.prologue is not None:
        x = call.prologue.apply(x.to(dtype)).expand(x.shape).to(x.dtype)
    y = x.to(dtype) @ weight.mT
    if call.bias is not None:
        y = y + call.bias.to(dtype)
    if call.epilogue is None:
        return y
    return call.epilogue.apply(*(y.chunk(2, -1) if call.gated else (y,))).expand(
        call.result_shape()
    )


def _excess(call: LinearCall, tiles: LinearTiles = _TILES, eps: float = 1.0) -> float:
    """Return the greatest error over its bound: twice the naive error, and a rounding."""
    out = multiply(call, tiles=tiles, widen=call.x.dtype == torch.bfloat16)
    assert out.shape == call.result_shape()
    assert out.is_contiguous()
    exact, naive = _computed(call, torch.float64), _computed(call, call.x.dtype).double()
    size = float(exact.abs().max()) if exact.numel() else 0.0
    finfo = torch.finfo(out.dtype)
    bound = 2 * (naive - exact).abs().max() if exact.numel() else torch.zeros(())
    bound = bound + finfo.eps * eps * (exact.abs() + size / 64) + finfo.smallest_normal
    error = (out.double() - exact).abs() / bound
    return float(error.nan_to_num(nan=torch.inf).max()) if out.numel() else 0.0


_LAYOUTS: dict[str, Callable[[Tensor], Any]] = {
    "plain": lambda weight: weight,
    "transposed": lambda weight: weight.t().contiguous().t(),
    "strided": lambda weight: torch.cat([weight, weight], 1)[:, : weight.shape[1]],
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
    weight = _LAYOUTS[layout](_normal(37, 45, dtype=dtype))
    call = LinearCall(_normal(3, 45, dtype=dtype, seed=1), weight, _normal(37, dtype=dtype))
    # The interpreter cuts float32 to bfloat16, where a device rounds: twice the rounding.
    assert _excess(call, eps=2.0 if dtype == torch.bfloat16 else 1.0) <= 1


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


@settings(max_examples=25)
@given(call=_calls(40), parts=st.sampled_from([1, 2]))
def test_sizes(call: LinearCall, parts: int) -> None:
    assert _excess(call, replace(_TILES, parts=parts)) <= 1


@pytest.mark.sweep
@settings(max_examples=200)
@given(call=_calls(140), parts=st.sampled_from([1, 2, 5]))
def test_many_sizes(call: LinearCall, parts: int) -> None:
    assert _excess(call, replace(_TILES, parts=parts)) <= 1


_X = _normal(3, 45, seed=1)
_COLUMN, _ROW = _normal(38, seed=3), torch.rand(3, 1)
_TILE = _normal(3, 38, seed=4)
_SCALAR = torch.tensor(0.25)
_FUNCTIONS: dict[str, tuple[Callable[..., Any], str, bool]] = {
    "gelu": (lambda y: torch.nn.functional.gelu(y) * _COLUMN + _ROW, "epilogue", False),
    "tile": (lambda y: (y + _TILE) * _SCALAR, "epilogue", False),
    "mask": (lambda y: torch.where(_TILE > 0, y, 0.0), "epilogue", False),
    "float32": (lambda y: y.float() * _ROW, "epilogue", False),
    "number": (lambda y: y * 2 - 1, "epilogue", False),
    "swiglu": (lambda gate, up: torch.nn.functional.silu(gate) * up, "epilogue", True),
    "gated-column": (lambda gate, up: gate * up + _COLUMN[:19], "epilogue", True),
    # Of 0 it is not 0, and what is beyond the depth is no product.
    "shifted": (lambda x: torch.cos(x) + 1.0, "prologue", False),
    "reciprocal": (lambda x: 1.0 / x, "prologue", False),
    "norm": (lambda x: x * _ROW * _SCALAR, "prologue", False),
}


def _function(name: str) -> dict[str, Recorded]:
    function, role, gated = _FUNCTIONS[name]
    return {role: record(function, role, gated, _X)}


def _with(*names: str, **changes: Any) -> LinearCall:
    functions: dict[str, Any] = {}
    for name in names:
        functions.update(_function(name))
    return replace(LinearCall(_X, _normal(38, 45), _normal(38, seed=2)), **functions, **changes)


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_functions(name: str) -> None:
    assert _excess(_with(name)) <= 1


@pytest.mark.parametrize("parts", [1, 2])
def test_functions_of_packed_weights_and_parts(parts: int) -> None:
    weight = PackedWeight(_normal(38, 45), format="int4", group=32).packed
    tiles = replace(_TILES, parts=parts)
    assert _excess(_with("shifted", "swiglu", weight=weight), tiles) <= 1


@pytest.mark.parametrize("parts", [1, 2])
def test_batches(parts: int) -> None:
    x, weight = _normal(2, 5, 40, seed=1), _normal(2, 18, 40)
    column = _normal(18, seed=6)
    epilogue = record(lambda y: torch.relu(y) + column, "epilogue", False, x)
    call = LinearCall(x, weight, None, None, epilogue)
    assert _excess(call, replace(_TILES, parts=parts)) <= 1


def test_rows_do_not_affect_one_another() -> None:
    call = LinearCall(_normal(6, 45, seed=1), _normal(37, 45))
    clean = multiply(call, tiles=_TILES)
    call.x[1, 44], call.x[4, 0] = float("nan"), float("inf")
    out = multiply(call, tiles=_TILES)
    assert out[1].isnan().all()
    assert not out[4].isfinite().any()
    rest = [0, 2, 3, 5]
    assert torch.equal(out[rest], clean[rest])


MUTANTS: list[tuple[str, str, Callable[[], LinearCall], int]] = [
    ("(columns < depth_count)", "(columns < depth_count - 1)", _with, 1),
    (
        "there, values, 0.0).to(dtype)",
        "there, values, values).to(dtype)",
        lambda: _with("reciprocal"),
        1,
    ),
    ("rows.to(tl.int64) * x[2]", "rows.to(tl.int64) * x[3]", _with, 1),
    ("n * weight[4] + k * weight[5]", "n * weight[5] + k * weight[4]", _with, 1),
    ("outputs + half, inside, start", "outputs, inside, start", lambda: _with("swiglu"), 1),
    ("bias + outputs + half", "bias + outputs", lambda: _with("swiglu"), 1),
    ("first_depth // GROUP", "0", lambda: _with(weight=_grouped()), 1),
    ("(depth // 4) % 2", "depth % 2", lambda: _with(weight=_grouped()), 1),
    ("(n // 64) * groups", "(n // 64)", lambda: _panels(), 1),
    ("first + span, depth_count", "first + span, depth_count - 32", _with, 2),
    ("at + half, up", "at + half, total", lambda: _with("swiglu"), 2),
    ("range(part_count)", "range(part_count - 1)", _with, 2),
    (
        "all_rows = batch.to(tl.int64) * row_count + rows",
        "all_rows = rows + 0 * batch",
        lambda: _batched(),
        1,
    ),
]


def _grouped() -> Any:
    return PackedWeight(_normal(38, 45), format="int4", group=32).packed


def _panels() -> LinearCall:
    return LinearCall(_X, PackedWeight(_normal(70, 45), format="int4", group=32).packed)


def _batched() -> LinearCall:
    return LinearCall(_normal(2, 3, 45, seed=1), _normal(2, 38, 45))


@pytest.mark.parametrize(
    ("right", "wrong", "call", "parts"), MUTANTS, ids=[wrong for _, wrong, _, _ in MUTANTS]
)
def test_mutant_is_caught(
    right: str,
    wrong: str,
    call: Callable[[], LinearCall],
    parts: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiles = replace(_TILES, parts=parts)
    broken = mutated([f"{_ROOM}.weights", f"{_ROOM}.product"], right, wrong)
    for kernel in ("linear_product", "linear_finish"):
        monkeypatch.setattr(f"{_ROOM}.product.{kernel}", getattr(broken, kernel))
    assert _excess(call(), tiles) > 1


def _current() -> str:
    raise AssertionError("a verdict looked at the machine")


def _judged(platform: Platform, **changes: Any) -> Any:
    request = LinearRequest("cuda", "bfloat16", 16, 4096, 4096)
    (found,) = implementations("linear/1", Vendor("cuda", "cuda", "cuda", _current))
    assert found.name == "cuda.triton"
    return found.supports(replace(request, **changes), platform)


def test_verdicts() -> None:
    machine = read_platform_file("h100").platform
    assert _judged(machine).supported
    assert _judged(machine, weight="int4", weight_options=(("group", 64),)).supported
    call = _with("shifted", "gelu").request()
    assert _judged(
        machine,
        **{
            name: getattr(call, name)
            for name in ("dtype", "prologue", "epilogue", "prologue_captured", "epilogue_captured")
        },
    ).supported
    assert _judged(machine, dtype="float64").code == ReasonCode.DTYPE
    assert _judged(machine, weight="marlin").code == ReasonCode.LAYOUT
    rounded = _judged(machine, weight="int8", weight_options=(("activation", 8),))
    assert rounded.code == ReasonCode.LAYOUT
    text = record(lambda y: torch.tanh(y.double()), "epilogue", False, _X).text
    refused = _judged(machine, dtype="float16", epilogue=text)
    assert refused.code == ReasonCode.OTHER
    assert "tanh of float64" in refused.text
    assert _judged(machine, device="cpu").code == ReasonCode.DEVICE


def test_loaded_implementation_computes() -> None:
    (found,) = implementations("linear/1", Vendor("cuda", "cuda", "cuda", lambda: "sm_90"))
    call = _with()
    out = found.load()(call)
    assert torch.equal(out, multiply(call, tiles=_TILES))
