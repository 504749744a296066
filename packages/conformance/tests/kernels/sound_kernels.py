"""Kernels that keep every law: the component's own, in parts that a mutant replaces one of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from torchyard import Claim, Implementation, Platform, ReasonCode, Verdict
from torchyard_conformance._kernels._case import implementation
from torchyard_conformance._kernels._tensors import mapped

__all__ = [
    "SoundBackward",
    "SoundKernel",
    "SoundLinear",
    "SoundPointwise",
    "SoundRecurrent",
    "SoundTopK",
]


class SoundKernel:
    """One of the component's own implementations, claiming everything that can be claimed.

    A subclass plants one fault by overriding one method.
    """

    contract: ClassVar[str]
    computes: ClassVar[str]

    def supports(self, request: Any, platform: Platform) -> Verdict:
        """Accept everything but complex numbers."""
        if getattr(request, "dtype", "") in ("complex64", "bool"):
            return Verdict.no(ReasonCode.DTYPE, f"expected real numbers, got {request.dtype}")
        return Verdict.yes()

    def compute(self, *given: Any) -> Any:
        """Compute a call."""
        return implementation(self.contract, self.computes)(*given)

    def implementation(self) -> Implementation:
        """Return what a plugin would offer."""
        return Implementation(
            self.contract,
            "sound.kernel",
            self.supports,
            lambda: self.compute,
            claims=frozenset(Claim),
        )


class SoundTopK(SoundKernel):
    """A stable sort."""

    contract: ClassVar[str] = "topk/1"
    computes: ClassVar[str] = "kernels.sort"


class SoundLinear(SoundKernel):
    """Products in float64, rounded once."""

    contract: ClassVar[str] = "linear/1"
    computes: ClassVar[str] = "kernels.reference"


class SoundRecurrent(SoundKernel):
    """Steps in float64, which torch differentiates; no reserve."""

    contract: ClassVar[str] = "recurrent/1"
    computes: ClassVar[str] = "kernels.reference"
    # What `load` returns says so.
    differentiable: ClassVar[bool] = True

    def supports(self, request: Any, platform: Platform) -> Verdict:
        """Refuse to return a reserve."""
        if request.reserve:
            return Verdict.no(ReasonCode.GRAD, "leaves gradients to torch")
        return super().supports(request, platform)

    def __call__(self, *given: Any) -> Any:
        """Compute a call."""
        return self.compute(*given)

    def implementation(self) -> Implementation:
        """Return what a plugin would offer: itself, which says that it is differentiable."""
        return replace(super().implementation(), load=lambda: self)


class SoundBackward(SoundKernel):
    """Gradients by the component's steps, in float64."""

    contract: ClassVar[str] = "recurrent_backward/1"
    computes: ClassVar[str] = "kernels.steps"

    def compute(self, *given: Any) -> Any:
        """Compute a call."""
        dtype = given[0].input.dtype

        def rounded(_: str, tensor: Tensor) -> Tensor:
            return tensor.to(dtype)

        return mapped(super().compute(*mapped(given, _wide)), rounded)


def _wide(_: str, tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


class SoundPointwise(SoundKernel):
    """Functions in float64, rounded once."""

    contract: ClassVar[str] = "pointwise/1"
    computes: ClassVar[str] = "kernels.map_reference"
