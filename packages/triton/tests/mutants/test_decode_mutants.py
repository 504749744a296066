"""Each planted fault of decoding, pages, packed sequences and their merge is caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pytest
import torch

from packages.triton.tests.decode_calls import call_with_pages, decode_call, sequences
from packages.triton.tests.mutants.mutation import mutated
from torchyard_attention import scores
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.reference import reference_forward
from torchyard_attention.tolerance import Ruler
from torchyard_triton.attention import Tiles, decode

_ROOM: Final = "torchyard_triton.device.attention"
_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "decode": ("tiles", "exact", "gradients", "forward", "decode"),
    "merge": ("merge",),
}


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        module: the kernel that has it.
        right, wrong: the text that is replaced, and by what.
        call: that shows it, one of those that the other tests compare.
    """

    module: str
    right: str
    wrong: str
    call: str


# Takes a part of a second, and is tried by each run of the tests.
_QUICK: Final = Mutant("merge", "total += share[:, None] *", "total +=", "one-query")
MUTANTS: Final = (
    _QUICK,
    Mutant("merge", "weight += share", "weight += 1.0", "one-query"),
    Mutant("merge", "range(splits)", "range(splits - 1)", "one-query"),
    Mutant("merge", "= tl.maximum(greatest, found", "= tl.maximum(found, found", "one-query"),
    Mutant("merge", 'tl.where(top == float("-inf"), 0.0, top)', "top", "no-keys"),
    Mutant("merge", "(rows // q_length) % heads", "rows % heads", "sinks"),
    # Parts of keys.
    Mutant("decode", "split * STEPS + STEPS,", "split * STEPS + STEPS - 1,", "one-query"),
    Mutant("decode", "* batches + b) * heads", "+ b) * heads", "one-query"),
    Mutant("decode", "lses + at, tl.where(empty", "lses + at, tl.where(weight < 0.0", "parts"),
    Mutant("decode", 'tl.where(empty, float("-inf"),', "tl.where(empty, 0.0,", "parts"),
    # Heads in one tile.
    Mutant(
        "decode", "head_of = first_head + virtual % FOLD", "head_of = first_head", "few-queries"
    ),
    Mutant("decode", "h = (first_head + virtual % FOLD)", "h = (virtual % FOLD)", "pages"),
    Mutant("decode", "q_count * FOLD, BLOCK * FOLD", "q_count * FOLD, BLOCK", "random"),
    # Pages: two strides in each other's place, another sequence's pages, the rest of the last page.
    Mutant(
        "decode",
        "page * tensor[1] + (columns % PAGE).to(tl.int64) * tensor[3]",
        "page * tensor[3] + (columns % PAGE).to(tl.int64) * tensor[1]",
        "pages",
    ),
    Mutant("decode", "n.to(tl.int64) * spans[2] + columns", "columns", "pages"),
    Mutant(
        "decode",
        "n * 0, tl.load(spans[1] + n)\n",
        "n * 0, (tl.load(spans[1] + n) + PAGE - 1) // PAGE * PAGE\n",
        "pages",
    ),
    # Packed sequences: where one begins, where it ends, which keys are behind a query.
    Mutant(
        "decode",
        "= tl.load(spans[0] + n), tl.load(spans[1] + n)",
        "= tl.load(spans[0] + n), tl.load(spans[0] + n).to(tl.int64)",
        "packed",
    ),
    Mutant("decode", "spans[1] + n + 1) - first_k", "spans[1] + n + 1) - first_k - 1", "packed"),
    Mutant("decode", "first, count, count - q_count)", "first, count, count * 0)", "packed-causal"),
    Mutant("decode", "(rows + behind)", "(rows + behind + 1)", "packed-causal"),
)


def _worst(pairs: Iterable[tuple[AttentionCall, AttentionResult]]) -> float:
    """Return the greatest share of an error's bound; NaN is infinitely far."""
    ratios = [error.ratio for call, result in pairs for error in Ruler(call).compare(result)]
    return math.inf if any(map(math.isnan, ratios)) else max(ratios)


def _of_pages(lengths: tuple[int, ...], kv_length: int, keys: int) -> float:
    call, whole = call_with_pages(lengths, kv_length)
    return _worst([(whole, decode(call, tiles=Tiles(rows=16, keys=keys)))])


def _of_sinks() -> float:
    call = replace(decode_call("few-queries"), max_scores=False)
    logits = torch.tensor([0.5, -1.0, 2.0, 0.0])
    result, exact = decode(call, sinks=logits), reference_forward(call)
    assert exact.lse is not None
    wanted = scores.sinks(exact.out, exact.lse, logits)
    return float((result.out - wanted.out).abs().max() / 1e-5)


def _of_call(name: str) -> float:
    call = decode_call(name)
    return _worst([(call, decode(call, tiles=Tiles(rows=32, keys=64)))])


_CALLS: Final[Mapping[str, Callable[[], float]]] = {
    "pages": partial(_of_pages, (50, 0, 17), 64, 16),
    # Of the second sequence the second part is empty, of the third one both.
    "parts": partial(_of_pages, (300, 20, 0), 300, 64),
    "packed": lambda: _worst(sequences(False)),
    "packed-causal": lambda: _worst(sequences(True)),
    "sinks": _of_sinks,
    **{name: partial(_of_call, name) for name in ("one-query", "few-queries", "no-keys", "random")},
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", _CALLS)
def test_without_a_fault_nothing_is_found_by_mutants_calls(name: str) -> None:
    assert _CALLS[name]() <= 1.0


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, marks=[] if one is _QUICK else pytest.mark.sweep) for one in MUTANTS],
    ids=lambda mutant: f"{mutant.module}-{mutant.wrong.strip()}",
)
def test_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = [f"{_ROOM}.{name}" for name in _MODULES[mutant.module]]
    name = f"attention_{mutant.module}"
    broken = getattr(mutated(rooms, mutant.right, mutant.wrong), name)
    monkeypatch.setattr(f"{rooms[-1]}.{name}", broken)
    assert _CALLS[mutant.call]() > 1.0
