"""Each planted fault of the gradients' kernels is caught, by a finding or by its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from packages.attention.tests.attention_calls import call_of
from plugins.mps.tests.attention.gradient_runs import given_for, gradients, worst
from torchyard_mps.attention import _backward, _captured

_VALUES: Final = "values"
_BARRIER: Final = "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
# What is planted, the call that shows it, and what finds it: a kind of finding, or wrong values.
_MUTANTS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "row-beyond-the-end": (
        *("row < end && at < columns", "row <= end && at < columns"),
        *("plain", "out-of-bounds"),
    ),
    "key-beyond-the-end": (
        *("k < tile.keys.end", "k <= tile.keys.end"),
        *("learnable-bias", "race"),
    ),
    "mask-of-other-bits": ("(k - key_block * KEY_BLOCK)", "(k % KEY_BLOCK ^ 1)", "causal", _VALUES),
    "whole-blocks-hidden": ("tile.whole ||", "", "everything", "out-of-bounds"),
    "no-scale": ("T(factor * sums", "T(sums", "plain", _VALUES),
    "no-delta": ("weight * (dropped - delta)", "weight * dropped", "plain", _VALUES),
    "no-slope": ("gradient * slope_of(programs, tile, row, k, s)", "gradient", "gate", _VALUES),
    "swapped-strides": (
        "strides[2], strides[3], span}",
        "strides[3], strides[2], span}",
        "plain",
        _VALUES,
    ),
    "one-member": ("member < members", "member < 1", "grouped-2", _VALUES),
    "wrong-head": ("kv_head * members + member", "kv_head + member", "grouped-2", _VALUES),
    "slots-of-another-list": ("lists.slots[at]", "lists.slots[0]", "random", _VALUES),
    "missing-barriers": (
        f"{_BARRIER}    for (int of = 0; of < 4; of++) {{\n",
        "    for (int of = 0; of < 4; of++) {\n",
        "plain",
        "missing-barrier",
    ),
    "missing-barrier-of-a-tile": (
        f"odd_parts[simd] = odd_in_simdgroup;\n{_BARRIER}",
        "odd_parts[simd] = odd_in_simdgroup;\n",
        "plain",
        "missing-barrier",
    ),
    "missing-simdgroup-barrier": (
        "  simdgroup_barrier(mem_flags::mem_threadgroup);\n}\n",
        "}\n",
        "plain",
        "missing-barrier",
    ),
    "lse-gradient-added": ("sum - grad_lse[at]", "sum + grad_lse[at]", "plain", _VALUES),
    "no-weight-of-the-read": ("gradient * SITE_WEIGHT", "gradient", "row-column", _VALUES),
    "parts-not-summed": ("total += part;", "total = part;", "head-gate", _VALUES),
    "sum-of-one-place-less": (
        "places[middle] < place + side",
        "places[middle] < place",
        "head-gate",
        _VALUES,
    ),
}


# Of kinds that others show too.
_SWEEP: Final = (
    *("no-delta", "no-scale", "one-member", "parts-not-summed", "slots-of-another-list"),
    *("sum-of-one-place-less", "whole-blocks-hidden", "wrong-head"),
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.sweep) if name in _SWEEP else name for name in _MUTANTS],
)
def test_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, of, found_by = _MUTANTS[name]
    read = _backward.metal_text
    seen = []

    def mutated(*names: str) -> str:
        text = read(*names)
        seen.append(right in text)
        return text.replace(right, wrong)

    for module in (_backward, _captured):
        monkeypatch.setattr(module, "metal_text", mutated)
    visible = _backward.visible_text
    monkeypatch.setattr(_backward, "visible_text", lambda mask: visible(mask).replace(right, wrong))
    call = call_of(of)
    inputs = given_for(call)
    if found_by == _VALUES:
        # NaN is no number that is less.
        assert not worst(call, inputs, gradients(call, inputs)) <= 1.0
    else:
        with pytest.raises(AssertionError, match=f"{found_by}:"):
            gradients(call, inputs)
    assert any(seen) or right in visible(call.mask)
