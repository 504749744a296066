"""A benchmark times nothing whose result is wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks import measure as measuring
from benchmarks.cases import CASES
from benchmarks.contestants import OURS, ruler
from benchmarks.limits import Limits
from benchmarks.measure import WrongResultError, measure

_LIMITS = Limits(float32_flops=1e12, read_bytes=1e10)
_SHORT = {case.name: case.shortened(16) for case in CASES}


@pytest.mark.parametrize("name", ["causal grouped", "decoding", "distance", "training"])
def test_a_right_result_is_timed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "contestants", lambda case: {OURS: ruler(case)})
    (row,) = measure(_SHORT[name], _LIMITS, rounds=2)
    assert row.milliseconds > 0


@pytest.mark.parametrize("wrong", [lambda out: out * 1.5, lambda out: out * torch.nan])
def test_a_wrong_result_is_refused(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        assert callable(wrong)
        result = wrong(ruler(_SHORT["full float32"])(query, key, value))
        assert isinstance(result, Tensor)
        return result

    monkeypatch.setattr(measuring, "contestants", lambda case: {OURS: attend})
    with pytest.raises(WrongResultError, match=r"expected within .* of float64"):
        measure(_SHORT["full float32"], _LIMITS, rounds=1)
