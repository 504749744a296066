"""Maps over lists give what their program gives in float64, rounded, under the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from packages.kernels.tests.pointwise.calls import call_of, excess, normal
from packages.kernels.tests.pointwise.suite import PointwiseSuite
from torchyard import Platform, ReasonCode, read_platform_file
from torchyard_kernels.pointwise.contract import PointwiseCall, PointwiseRequest
from torchyard_programs import trace
from torchyard_triton import Vendor, implementations
from torchyard_triton.lowering._modules import module_of
from torchyard_triton.pointwise import compute
from torchyard_triton.pointwise._kernel import kernel_of
from torchyard_triton.pointwise._map import map_launch


class TestPointwise(PointwiseSuite):
    """The suite of every implementation."""

    def compute(self, call: PointwiseCall) -> tuple[Sequence[Tensor], ...]:
        """Compute a call."""
        return compute(call)


def test_one_launch_computes_all_groups() -> None:
    xs = normal([(3, 4), (1037,), (0,), (2, 3, 5), (2048,)])
    call = call_of(lambda x, a: torch.tanh(x) * a, xs, [0.5] * len(xs))
    launch, _ = map_launch(call)
    # 1037 and 2048 elements take two chunks each, nothing takes none.
    assert launch.grid == (1 + 2 + 0 + 1 + 2,)
    assert excess(call, compute) <= 1


_XS = normal([(5, 3), (2, 3)], seed=6)
_YS = [tensor.t().contiguous().t() for tensor in normal([(5, 3), (2, 3)], seed=7)]
_LONG = normal([(1100,), (5,)], seed=8)


def _written(function: Callable[..., Any], *lists: Sequence[Any]) -> PointwiseCall:
    """Return a call into zeros, which no result is."""
    return call_of(function, *lists, out=([torch.zeros_like(item) for item in lists[0]],))


def _shifted(x: Any, y: Any = 1.0) -> Any:
    return 3 + x * y


# No mutant writes outside of its memory.
MUTANTS: list[tuple[str, str, Callable[[], PointwiseCall]]] = [
    ("at < count", "at < count - 1", lambda: _written(_shifted, _XS, _YS)),
    ("index * stride", "index", lambda: _written(_shifted, _XS, _YS)),
    (
        "DIMENSIONS * (1 + OPERAND) + dimension",
        "DIMENSIONS + dimension",
        lambda: _written(_shifted, _XS, _YS),
    ),
    ("index = rest % size", "index = rest * 0", lambda: _written(_shifted, _XS, _YS)),
    ("tl.load(chunk) * WIDTH", "0 * WIDTH", lambda: _written(_shifted, _LONG)),
    ("tl.load(chunk + 1) * BLOCK", "0", lambda: _written(_shifted, _LONG)),
    ("tl.float64, bitcast=True", "tl.float64", lambda: _written(_shifted, _XS, [2.0, 3.0])),
    ("bits != 0", "bits == 0", lambda: _written(_chosen, _XS, [True, False])),
]


def _chosen(x: Any, flag: Any) -> Any:
    return torch.where(torch.isfinite(x) & flag, x, 3.0)


@pytest.mark.parametrize(
    ("right", "wrong", "call"), MUTANTS, ids=[wrong for _, wrong, _ in MUTANTS]
)
def test_mutant_is_caught(
    right: str,
    wrong: str,
    call: Callable[[], PointwiseCall],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torchyard_triton.device.pointwise as room
    from torchyard_triton.device.pointwise import operands

    with open(operands.__file__, encoding="utf-8") as file:
        source = file.read()
    assert right in source
    broken = source.replace(right, wrong)
    with monkeypatch.context() as patch:
        # The kernel, which is made from text, imports the module by its name.
        kernel_of.cache_clear()
        module_of.cache_clear()
        patch.setattr(room, "operands", module_of(f"mutant{abs(hash(broken))}", broken))
        caught = False
        try:
            caught = excess(call(), compute) > 1
        except AssertionError:
            caught = True
    kernel_of.cache_clear()
    module_of.cache_clear()
    assert caught


def _current() -> str:
    raise AssertionError("a verdict looked at the machine")


def _judged(
    platform: Platform, function: Callable[..., Any], *operands: Any, **changes: Any
) -> Any:
    names = tuple((f"x{number}", None) for number in range(len(operands)))
    text, _ = trace(function, "fn", names, torch.device("cpu"))
    (found,) = implementations("pointwise/1", Vendor("cuda", "cuda", "cuda", _current))
    assert found.name == "cuda.triton"
    request = replace(PointwiseRequest("cuda", text, operands), **changes)
    return found.supports(request, platform)


def test_verdicts() -> None:
    machine = read_platform_file("h100").platform
    half, number = ("bfloat16", 1), ("float", -1)
    assert _judged(machine, lambda x, a: torch.tanh(x) * a, half, number).supported
    assert _judged(machine, lambda x: (x, x * 2), half, out=("bfloat16",) * 2).supported
    refused = _judged(machine, lambda x: torch.tanh(x), ("float64", 1))
    assert refused.code == ReasonCode.OTHER
    assert "tanh of float64" in refused.text
    assert _judged(machine, lambda x: x, ("complex64", 1)).code == ReasonCode.DTYPE
    assert _judged(machine, lambda x: x, half, device="cpu").code == ReasonCode.DEVICE
    (found,) = implementations("pointwise/1", Vendor("cuda", "cuda", "cuda", _current))
    call = call_of(lambda x: x + 1, _XS)
    assert torch.equal(found.load()(call)[0][0], _XS[0] + 1)
