"""The subject of a law of attention: one implementation on one device."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torchyard import Claim, Implementation, Platform, Verdict, probe_platform, with_accelerators
from torchyard_attention.cases import Case
from torchyard_attention.contract import (
    BACKWARD,
    AttentionCall,
    AttentionGradients,
    AttentionRequest,
    AttentionResult,
)
from torchyard_conformance._attention._state import note_settings
from torchyard_conformance._outcome import NotSupported, Violated
from torchyard_conformance._trials._threads import threads

__all__ = ["Kernel"]


class Kernel:
    """An implementation of ``attention/1`` or ``attention_backward/1`` on one device.

    Args:
        implementation: what its plugin offers.
        device: torch device type of the calls.
        platform: what its verdicts are asked for; None probes this machine and its accelerators.
        forward: for a backward, the same plugin's forward, so that gradients are checked by
            differences of its own outputs; None: the reference.
        threads: torch's number of threads while it computes; 0: what it is.
    """

    def __init__(
        self,
        implementation: Implementation,
        device: str = "cpu",
        platform: Platform | None = None,
        forward: Implementation | None = None,
        threads: int = 0,
    ) -> None:
        note_settings()
        self.implementation = implementation
        self.device = device
        if platform is None:
            platform = with_accelerators(probe_platform(), device)
        self.platform = platform
        self.forward_half = forward
        self.threads = threads

    def __repr__(self) -> str:
        return f"{self.implementation.name} on {self.device}"

    @property
    def name(self) -> str:
        """The implementation's name."""
        return self.implementation.name

    @property
    def is_backward(self) -> bool:
        """Whether it computes gradients."""
        return self.implementation.contract == BACKWARD

    @cached_property
    def function(self) -> Callable[..., Any]:
        """What the implementation loads, once."""
        return self.implementation.load()

    def claims(self, claim: Claim) -> bool:
        """Return whether the implementation promises something of its results."""
        return claim in self.implementation.claims

    def verdict(self, request: AttentionRequest) -> Verdict:
        """Ask the implementation."""
        return self.implementation.verdict(request, self.platform)

    def require(self, request: AttentionRequest) -> None:
        """Go on only where the implementation accepts a request.

        Raises:
            NotSupported: it refuses; says why.
        """
        verdict = self.verdict(request)
        if not verdict.supported:
            raise NotSupported(f"{verdict.code}: {verdict.text}")

    def accept(self, case: Case, **changes: Any) -> AttentionCall:
        """Build a case's call, where the implementation accepts it.

        Args:
            case: the call.
            changes: attributes of :class:`AttentionCall` to replace.

        Raises:
            NotSupported: it refuses, or it is a backward and the case has no lse.
        """
        call = case.call(self.device)
        if self.is_backward and not call.lse:
            raise NotSupported("a backward needs the lse")
        self.require(case.request(call, grad=self.is_backward))
        return call

    def run(self, call: AttentionCall) -> AttentionResult:
        """Compute a forward.

        Raises:
            Violated: it raises, or returns something else than an AttentionResult.
        """
        result: AttentionResult = self._called(AttentionResult, call)
        return result

    def gradients(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
    ) -> AttentionGradients:
        """Compute a backward. Raises as :meth:`run`."""
        found: AttentionGradients = self._called(
            AttentionGradients, call, out, lse, grad_out, grad_lse
        )
        return found

    def _called(self, kind: type[Any], *given: Any) -> Any:
        try:
            # As the registry's callers do: what is differentiable is the op around it.
            with torch.no_grad(), threads(self.threads):
                result = self.function(*given)
        except Exception as error:
            raise Violated(
                f"accepts the call, then raises {type(error).__name__}: {_line(error)}"
            ) from error
        if not isinstance(result, kind):
            raise Violated(f"expected an {kind.__name__}, got {type(result).__name__}")
        return result


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:300]
