"""Each planted fault of folded heads, parts, pages and their merging is caught."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from packages.attention.tests.paged.paged_calls import paged
from plugins.mps.tests.attention.decode_calls import PART, alibi, decode_call
from plugins.mps.tests.attention.forward_runs import forward
from torchyard_attention.contract import AttentionCall
from torchyard_attention.tolerance import Ruler, report
from torchyard_mps.attention import _forward, _merge

_ONCE: Final[dict[str, Any]] = {"orders": 1, "address_sanitizer": False}
_VALUES: Final = "values"
_PAGED: Final = "pages"
# What is planted, the call that shows it, and what finds it: a kind of finding, or wrong values.
_MUTANTS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "each-part-has-the-first-keys": (
        *("part_number * part_steps", "0 * part_steps"),
        *("one-key-head", _VALUES),
    ),
    "parts-overlap": ("begin + part_steps)", "begin + part_steps + 1)", "one-key-head", _VALUES),
    "parts-have-gaps": ("begin + part_steps)", "begin + part_steps - 1)", "one-key-head", _VALUES),
    "parts-write-one-place": (
        *("part_number * sizes[kAllRows]", "0 * sizes[kAllRows]"),
        *("one-key-head", "race"),
    ),
    "scores-of-one-head": ("first_head + folded_row % FOLD", "first_head", "one-key-head", _VALUES),
    "queries-of-one-head": (
        *("row % FOLD * rows.head_stride", "0 * rows.head_stride"),
        *("one-key-head", _VALUES),
    ),
    "row-of-the-tile-as-query": (
        *("row = folded_row / FOLD", "row = folded_row"),
        *("one-key-head", "out-of-bounds"),
    ),
    "tiles-without-heads": (
        *("min(q_length, BLOCK) * FOLD", "min(q_length, BLOCK)"),
        *("blocks-of-tiles", _VALUES),
    ),
    "rows-without-heads": (
        *("end = q_length * FOLD", "end = q_length"),
        *("one-key-head", _VALUES),
    ),
    "one-page": ("keys.pages[k / size]", "keys.pages[0]", _PAGED, _VALUES),
    "place-beyond-the-page": (
        *("k % size * keys.row_stride", "k * keys.row_stride"),
        *(_PAGED, _VALUES),
    ),
    "table-of-one-sequence": ("table + b * sizes[kTableWidth]", "table", _PAGED, _VALUES),
    "keys-beyond-the-length": (
        *("PAGE == 0 ? kv_length : lengths[b]", "kv_length"),
        *(_PAGED, _VALUES),
    ),
    "last-part-lost": (
        *(
            "part < parts; part++) {\n      const long",
            "part + 1 < parts; part++) {\n      const long",
        ),
        *("one-key-head", _VALUES),
    ),
    "shares-of-the-first-part": (
        *("exp(part_lse[place] - base)", "exp(part_lse[row] - base)"),
        *("one-key-head", _VALUES),
    ),
    "parts-of-equal-weight": ("total += share *", "total +=", "one-key-head", _VALUES),
    "not-divided": ("T(total / divisor)", "T(total)", "one-key-head", _VALUES),
    "lse-without-base": (
        "base + precise::log(divisor)",
        "precise::log(divisor)",
        "softcap",
        _VALUES,
    ),
    "no-base": ("top == -INFINITY ? 0.0f : top", "0.0f", "large-scores", _VALUES),
    "empty-rows-undefined": (
        *("top == -INFINITY ? 0.0f : top;\n    float total", "top;\n    float total"),
        *("hidden-parts", _VALUES),
    ),
    "greatest-of-one-part": ("max(greatest, found)", "found", "whole-parts", _VALUES),
    "element-beyond-the-end": (
        *("at < rows * columns", "at <= rows * columns"),
        *("one-key-head", "out-of-bounds"),
    ),
}
# Of kinds that others show too.
_SWEEP: Final = (
    *("parts-have-gaps", "row-of-the-tile-as-query", "rows-without-heads", "parts-of-equal-weight"),
    *("not-divided", "no-base", "element-beyond-the-end", "place-beyond-the-page"),
)


def _call(name: str) -> tuple[AttentionCall, AttentionCall]:
    """Return a call, and what it is compared with."""
    if name == _PAGED:
        return paged((150, 0, 100), score_mod=alibi)
    return decode_call(name), decode_call(name)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.sweep) if name in _SWEEP else name for name in _MUTANTS],
)
def test_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, of, found_by = _MUTANTS[name]
    read = _forward.metal_text
    seen = []

    def mutated(*names: str) -> str:
        text = read(*names)
        seen.append(right in text)
        return text.replace(right, wrong)

    for module in (_forward, _merge):
        monkeypatch.setattr(module, "metal_text", mutated)
    call, whole = _call(of)
    result, findings = forward(call, None, PART, **_ONCE)
    assert any(seen)
    if found_by == _VALUES:
        assert report(Ruler(whole).compare(result))
    else:
        assert any(finding.startswith(f"{found_by}:") for finding in findings), findings
