"""Bounds of errors: what naive arithmetic cannot compute allows nothing."""

from __future__ import annotations

import math

import pytest
import torch

from torchyard_conformance._kernels._ruler import _ratio
from torchyard_conformance._outcome import Violated


@pytest.mark.parametrize("overflow", [math.inf, -math.inf, math.nan])
def test_naive_arithmetic_that_overflows_bounds_nothing(overflow: float) -> None:
    right = torch.tensor([1.0, 2.0], dtype=torch.float64)
    naive = torch.tensor([1.0, overflow])
    assert _ratio("out", right.float(), right, naive) == 0
    for wrong in ([1.0, 5.0], [9.0, 2.0]):
        with pytest.raises(Violated, match="times the bound"):
            _ratio("out", torch.tensor(wrong), right, naive)
    with pytest.raises(Violated, match="times the bound"):
        _ratio("out", torch.tensor([1.0, 5.0]), right, torch.full((2,), overflow))
