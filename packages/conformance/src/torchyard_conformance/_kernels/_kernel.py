"""The subject of a law of kernels: one implementation on one device."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torchyard import (
    Claim,
    Implementation,
    Platform,
    Request,
    Verdict,
    probe_platform,
    with_accelerators,
)
from torchyard_conformance._kernels._case import Case, Given
from torchyard_conformance._outcome import NotSupported, Violated
from torchyard_conformance._trials._threads import threads

__all__ = ["Kernel"]


class Kernel:
    """An implementation of a contract of torchyard_kernels on one device.

    Args:
        implementation: what its plugin offers.
        device: torch device type of the calls.
        platform: what its verdicts are asked for; None probes this machine and its accelerators.
        threads: torch's number of threads while it computes; 0: what it is.
    """

    def __init__(
        self,
        implementation: Implementation,
        device: str = "cpu",
        platform: Platform | None = None,
        threads: int = 0,
    ) -> None:
        self.implementation = implementation
        self.device = device
        if platform is None:
            platform = with_accelerators(probe_platform(), device)
        self.platform = platform
        self.threads = threads

    def __repr__(self) -> str:
        return f"{self.name} on {self.device}"

    @property
    def name(self) -> str:
        """The implementation's name."""
        return self.implementation.name

    @property
    def contract(self) -> str:
        """The contract that it implements."""
        return self.implementation.contract

    @cached_property
    def function(self) -> Callable[..., Any]:
        """What the implementation loads, once."""
        return self.implementation.load()

    def claims(self, claim: Claim) -> bool:
        """Return whether the implementation promises something of its results."""
        return claim in self.implementation.claims

    def verdict(self, request: Request) -> Verdict:
        """Ask the implementation."""
        return self.implementation.verdict(request, self.platform)

    def accept(self, case: Case) -> Given:
        """Return a case's call, where the implementation accepts it.

        Raises:
            NotSupported: it refuses; says why.
        """
        given = case.given(self.device)
        verdict = self.verdict(case.request(given))
        if not verdict.supported:
            raise NotSupported(f"{verdict.code}: {verdict.text}")
        return given

    def run(self, case: Case, given: Given) -> dict[str, Tensor]:
        """Compute a call; its outputs by name.

        Raises:
            Violated: it raises, or returns no tensors.
        """
        try:
            # As the registry's callers do: what is differentiable is the op around it.
            with torch.no_grad(), threads(self.threads):
                result = self.function(*given)
        except Exception as error:
            line = (str(error).strip().splitlines() or ["no message"])[0][:300]
            raise Violated(
                f"accepts the call, then raises {type(error).__name__}: {line}"
            ) from error
        found = case.named_outputs(result)
        if not found:
            raise Violated(f"expected tensors, got {type(result).__name__}")
        return found
