"""Races on a device take other libraries in where they are installed, and say so where not.

The libraries here are stand-ins with their public functions' names and parameters.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from benchmarks.accelerators.attention import race_attention
from benchmarks.accelerators.cases import CASES, RaceCase
from benchmarks.accelerators.libraries import LIBRARIES, contestants
from benchmarks.accelerators.row import Row
from benchmarks.accelerators.timing import Timer

_SDPA: Final = """
import torch
from torch.nn.functional import scaled_dot_product_attention

calls = []


def _computed(q, k, v, scale, causal):
    q, k, v = (x.movedim(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(
        q, k, v, scale=scale, is_causal=causal, enable_gqa=True
    ).movedim(1, 2)
"""
_FLASH: Final = """

def flash_attn_func(
    q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None,
    v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1,
    pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False,
):
    calls.append("flash_attn_func")
    return _computed(q, k, v, softmax_scale, causal)


def flash_attn_with_kvcache(q, k_cache, v_cache, *, softmax_scale=None, causal=False, num_splits=0):
    calls.append("flash_attn_with_kvcache")
    return _computed(q, k_cache, v_cache, softmax_scale, causal)
"""
# As in the first versions.
_PAIR: Final = _FLASH.replace(
    "return _computed(q, k, v, softmax_scale, causal)",
    "return _computed(q, k, v, softmax_scale, causal), None",
)
_WRONG: Final = _FLASH.replace("softmax_scale, causal)", "softmax_scale, False)")
_INFER: Final = """

def single_prefill_with_kv_cache(q, k, v, *, causal=False, kv_layout="NHD", sm_scale=None):
    assert q.ndim == k.ndim == v.ndim == 3 and kv_layout == "NHD"
    calls.append("single_prefill")
    return _computed(*(x.unsqueeze(0) for x in (q, k, v)), sm_scale, causal)[0]


class BatchDecodeWithPagedKVCacheWrapper:
    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_tensor_cores=False):
        assert float_workspace_buffer.dtype == torch.uint8 and kv_layout == "NHD"

    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
        pos_encoding_mode="NONE", window_left=-1, logits_soft_cap=None, q_data_type="float16",
        kv_data_type=None, data_type=None, sm_scale=None,
    ):
        assert {x.dtype for x in (indptr, indices, last_page_len)} == {torch.int32}
        calls.append("plan")
        self.plan_ = indptr.tolist(), indices.long(), last_page_len.tolist(), page_size, sm_scale
        self.sizes = num_qo_heads, num_kv_heads, head_dim

    def run(self, q, paged_kv_cache):
        keys, values = paged_kv_cache
        indptr, indices, last, page, scale = self.plan_
        assert (q.shape[1], keys.shape[2], q.shape[2]) == self.sizes and keys.shape[1] == page
        calls.append("run")
        rows = []
        for at, row in enumerate(q):
            used = indices[indptr[at] : indptr[at + 1]]
            length = (len(used) - 1) * page + last[at]
            k, v = (x[used].flatten(0, 1)[:length].unsqueeze(0) for x in (keys, values))
            rows.append(_computed(row[None, None], k, v, scale, False)[0, 0])
        return torch.stack(rows)
"""
_SMALL: Final[dict[str, Any]] = {
    "q_heads": 4,
    "kv_heads": 2,
    "head_dim": 32,
    "q_length": 48,
    "kv_length": 48,
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that are found; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for library in LIBRARIES.values():
        sys.modules.pop(library.module, None)
    importlib.invalidate_caches()


def _install(folder: Path, flash: str = _FLASH, infer: str = _INFER) -> None:
    for name, text in (("flash_attn_interface", flash), ("flashinfer", infer)):
        (folder / f"{name}.py").write_text(_SDPA + text, encoding="utf-8")
    importlib.invalidate_caches()


def _race(case: RaceCase) -> dict[str, Row]:
    timer = Timer("cpu", quick=True)
    rows = race_attention("case", case, torch.float32, 2, timer, timer.limits())
    return {row.contestant: row for row in rows if row.contract == "attention/1"}


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_libraries_race_where_they_are_installed(mask: str, installed: Path) -> None:
    _install(installed)
    rows = _race(RaceCase(mask=mask, training=False, **_SMALL))
    for name in LIBRARIES:
        assert not rows[name].wrong
        assert not rows[name].absent
        assert rows[name].milliseconds > 0
        assert not rows[name].chosen


def test_a_decode_is_planned_once_and_run_often(installed: Path) -> None:
    _install(installed, _PAIR)
    decode = replace(CASES["decode"], **{**_SMALL, "q_length": 1, "kv_length": 50}, batch=3)
    rows = _race(decode)
    assert {name: rows[name].wrong for name in LIBRARIES} == dict.fromkeys(LIBRARIES, "")
    calls = sys.modules["flashinfer"].calls
    # For the judged length and for the timed one.
    assert calls.count("plan") == 2
    assert calls.count("run") > 3
    assert set(sys.modules["flash_attn_interface"].calls) == {"flash_attn_with_kvcache"}


def test_a_library_that_returns_a_pair_is_understood(installed: Path) -> None:
    _install(installed, _PAIR)
    rows = _race(RaceCase(mask="causal", training=True, **_SMALL))
    assert not rows["flash-attention-3"].wrong


def test_a_wrong_or_failing_library_is_not_timed(installed: Path) -> None:
    _install(installed, _WRONG, "raise OSError('no such kernel')\n")
    rows = _race(RaceCase(mask="causal", training=False, **_SMALL))
    assert rows["flash-attention-3"].wrong
    assert rows["flashinfer"].wrong == "OSError: no such kernel"
    assert {rows[name].milliseconds for name in LIBRARIES} == {0.0}


def test_an_absent_library_has_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.accelerators.libraries.find_spec", lambda name: None)
    rows = _race(RaceCase(training=False, **_SMALL))
    for name, library in LIBRARIES.items():
        assert rows[name].absent == f"{library.module} is not installed"
        assert not rows[name].wrong
        assert "is not installed" in str(rows[name])


def test_each_library_has_the_cases_that_its_function_takes() -> None:
    def names(case: RaceCase) -> set[str]:
        found, absent = contestants(case)
        return {*found, *absent}

    for name in ("plain", "causal", "causal-64", "decode"):
        assert names(CASES[name]) == set(LIBRARIES)
    for name in ("window", "alibi", "softcap"):
        assert names(CASES[name]) == set()
    assert names(replace(CASES["plain"], batch=2)) == {"flash-attention-3"}
