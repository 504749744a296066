"""Each planted fault of a kernel is caught by the comparisons that the other tests make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import pytest
import torch

from packages.attention.tests.attention_calls import call_of
from packages.triton.tests.mutants.mutation import mutated
from torchyard_attention.contract import AttentionCall
from torchyard_attention.reference import reference_forward
from torchyard_attention.tolerance import GradientRuler, Ruler
from torchyard_triton.attention import Tiles, backward, forward

_ROOM: Final = "torchyard_triton.device.attention"
_TILES: Final = Tiles(rows=32, keys=32)


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        module: the pass that has it.
        right, wrong: the text that is replaced, and by what.
        call: that shows it.
    """

    module: str
    right: str
    wrong: str
    call: str


MUTANTS: Final = (
    Mutant("forward", "total * rescale[:, None])", "total)", "lengths-1-70"),
    Mutant("forward", "weight * rescale + tl.sum", "weight + tl.sum", "lengths-1-70"),
    Mutant("forward", "by_column(columns < stop", "by_column(columns <= stop", "plain"),
    Mutant("forward", "h // group", "h * 0", "grouped-2"),
    Mutant("forward", "tl.load(mask[0] + row) *", "(tl.load(mask[0] + row) - 1) *", "random"),
    Mutant(
        "forward",
        "tl.load(mask[2] + row) *",
        "(tl.load(mask[2] + row) - 1) *",
        "everything",
    ),
    Mutant("forward", "(mask[5] + row) + place", "(mask[5] + row)", "random"),
    Mutant("forward", "(base + tl.log2(divisor))", "tl.log2(divisor)", "gate"),
    Mutant("forward", "by_column(key % 8", "by_column(7 - key % 8", "random"),
    Mutant("forward", "* tensor[3] + columns", "* tensor[4] + columns", "plain"),
    Mutant("forward", "to(tl.int64) * tensor[1]", "to(tl.int64) * tensor[2]", "documents"),
    Mutant("forward", "% mask[6]) * mask[7]", "% mask[6]) * mask[6]", "per-batch-and-head"),
    Mutant("query_gradient", "(total * scale)", "total", "plain"),
    Mutant("query_gradient", "dropped - by_row(delta, TURNED)", "dropped", "plain"),
    Mutant("query_gradient", "slope * SLOPE(", "slope + 0.0 * SLOPE(", "gate"),
    Mutant("query_gradient", "(seen | whole)", "seen", "everything"),
    Mutant("key_gradient", "range(group)", "range(1)", "grouped-2"),
    Mutant("key_gradient", "kv_head * group + member", "kv_head + member", "grouped-2"),
    Mutant(
        "key_gradient", "tl.load(transposed[4] + at", "tl.load(transposed[4] + 0 * at", "random"
    ),
    Mutant("key_gradient", "q, key_total,", "q, 0.0 * key_total,", "lengths-65-1"),
    Mutant("delta", "total - tl.load", "total + tl.load", "plain"),
    Mutant("captured_gradient", "found * weight", "found", "row-column"),
    Mutant("captured_gradient", "total += tl.sum", "total = tl.sum", "head-gate"),
)


# One of each direction takes a part of a second, and is tried by each run of the tests.
_QUICK: Final = (MUTANTS[0], next(one for one in MUTANTS if one.module == "query_gradient"))


def _modules(module: str) -> list[str]:
    """Return a pass and what it imports of its room, what is imported first."""
    parts = {
        "captured_gradient": ("tiles", "gradients", "captured_gradient"),
        "delta": ("tiles", "delta"),
        "forward": ("tiles", "exact", "forward"),
    }.get(module, ("tiles", "exact", "gradients", module))
    return [f"{_ROOM}.{part}" for part in parts]


def _worst(call: AttentionCall, module: str) -> float:
    if module == "forward":
        return max(error.ratio for error in Ruler(call).compare(forward(call, tiles=_TILES)))
    result = reference_forward(call)
    assert result.lse is not None
    generator = torch.Generator().manual_seed(9)
    grad_out = torch.randn(result.out.shape, generator=generator).to(result.out.dtype)
    grad_lse = torch.randn(result.lse.shape, generator=generator)
    got = backward(call, result.out, result.lse, grad_out, grad_lse, tiles=_TILES)
    errors = GradientRuler(call, grad_out, grad_lse).compare(got)
    return max(error.ratio for error in errors)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, marks=[] if one in _QUICK else pytest.mark.sweep) for one in MUTANTS],
    ids=lambda mutant: f"{mutant.module}-{mutant.wrong}",
)
def test_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = mutated(_modules(mutant.module), mutant.right, mutant.wrong)
    name = f"attention_{mutant.module}"
    monkeypatch.setattr(f"{_ROOM}.{mutant.module}.{name}", getattr(broken, name))
    worst = _worst(call_of(mutant.call), mutant.module)
    assert math.isnan(worst) or worst > 1.0
