"""Gradients of recurrent layers in Metal on this machine, beside float64."""

from __future__ import annotations

from typing import Any

from plugins.mps.tests.emulated import emulated
from torchyard_conformance._kernels._cases._recurrent import BackwardCase
from torchyard_conformance._kernels._ruler import compare
from torchyard_kernels.recurrent.contract import RecurrentGradients
from torchyard_mps.recurrent import backward

__all__ = ["gradients", "worst"]


def gradients(*given: Any, **options: Any) -> RecurrentGradients:
    """Return what the kernels compute of a backward's arguments; a finding is an error."""
    with emulated(**options):
        return backward(*given)


def worst(case: BackwardCase, **options: Any) -> float:
    """Return the greatest error over its bound, twice that of a naive computation.

    Raises:
        Violated: it is above 1, or a gradient is not what it must be.
    """
    found = gradients(*case.given(), **options)
    dtypes = {tensor.dtype for tensor in case.named_outputs(found).values()}
    assert dtypes == {found.input.dtype}
    assert str(found.input.dtype) == f"torch.{case.dtype}"
    return max(compare(case, case.named_outputs(found)).values())
