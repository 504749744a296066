"""Products are as near to float64 as a naive computation in the call's dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from packages.kernels.tests.linear.calls import excess, normal
from packages.kernels.tests.linear.suite import LinearSuite, call_with
from packages.triton.tests.mutants.mutation import mutated
from torchyard import Platform, ReasonCode, read_platform_file
from torchyard_kernels import PackedWeight
from torchyard_kernels.linear._functions.function import record
from torchyard_kernels.linear.contract import LinearCall, LinearRequest
from torchyard_triton import Vendor, implementations
from torchyard_triton.linear import LinearTiles, multiply

_ROOM = "torchyard_triton.device.linear"
_TILES = LinearTiles(16, 32, 32)


def _multiply(call: LinearCall, parts: int) -> Tensor:
    tiles = replace(_TILES, parts=parts)
    return multiply(call, tiles=tiles)


class TestLinear(LinearSuite):
    """The suite of every implementation, in small tiles."""

    # The interpreter cuts float32 to bfloat16, where a device rounds: twice the rounding.
    roundings: ClassVar[float] = 2.0
    # What it cuts of a prologue's result, a sum in float32 shows.
    drawn: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.float16)
    parts: ClassVar[int] = 1

    def compute(self, call: LinearCall) -> Tensor:
        """Compute a call."""
        return _multiply(call, self.parts)


class TestTwoParts(TestLinear):
    """The suite where the depth is cut in two."""

    parts: ClassVar[int] = 2


@pytest.mark.sweep
class TestFiveParts(TestLinear):
    """The suite where the depth is cut in five."""

    parts: ClassVar[int] = 5


_X = normal(3, 45, seed=1)


def _grouped() -> LinearCall:
    weight = PackedWeight(normal(38, 45), format="int4", group=32).packed
    return LinearCall(_X, weight, normal(38, seed=2))


def _panels() -> LinearCall:
    return LinearCall(_X, PackedWeight(normal(70, 45), format="int4", group=32).packed)


def _batched() -> LinearCall:
    return LinearCall(normal(2, 3, 45, seed=1), normal(2, 38, 45))


MUTANTS: list[tuple[str, str, Callable[[], LinearCall], int]] = [
    ("(columns < depth_count)", "(columns < depth_count - 1)", call_with, 1),
    (
        "there, values, 0.0).to(dtype)",
        "there, values, values).to(dtype)",
        lambda: call_with("reciprocal"),
        1,
    ),
    ("rows.to(tl.int64) * x[2]", "rows.to(tl.int64) * x[3]", call_with, 1),
    ("n * weight[4] + k * weight[5]", "n * weight[5] + k * weight[4]", call_with, 1),
    ("outputs + half, inside, start", "outputs, inside, start", lambda: call_with("swiglu"), 1),
    ("bias + outputs + half", "bias + outputs", lambda: call_with("swiglu"), 1),
    ("first_depth // GROUP", "0", _grouped, 1),
    ("(depth // 4) % 2", "depth % 2", _grouped, 1),
    ("(n // 64) * groups", "(n // 64)", _panels, 1),
    ("first + span, depth_count", "first + span, depth_count - 32", call_with, 2),
    ("at + half, up", "at + half, total", lambda: call_with("swiglu"), 2),
    ("range(part_count)", "range(part_count - 1)", call_with, 2),
    (
        "all_rows = batch.to(tl.int64) * row_count + rows",
        "all_rows = rows + 0 * batch",
        _batched,
        1,
    ),
]


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
    broken = mutated([f"{_ROOM}.weights", f"{_ROOM}.product"], right, wrong)
    for kernel in ("linear_product", "linear_finish"):
        monkeypatch.setattr(f"{_ROOM}.product.{kernel}", getattr(broken, kernel))
    assert excess(call(), lambda call: _multiply(call, parts)) > 1


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
    call = call_with("shifted", "gelu-column-row").request()
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
    call = call_with()
    out = found.load()(call)
    assert torch.equal(out, multiply(call, tiles=_TILES))
