"""Kernels that keep every law: the component's own, in parts that a mutant replaces one of."""

from __future__ import annotations

from typing import Any, ClassVar

from torchyard import Claim, Implementation, Platform, ReasonCode, Verdict
from torchyard_conformance._kernels._case import implementation

__all__ = ["SoundKernel", "SoundLinear", "SoundTopK"]


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
