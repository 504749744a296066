"""The short way to a kernel: what an implementation of any contract here may offer."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["DirectCall", "OffersFused"]


class DirectCall(Protocol):
    """A short way to a kernel, for calls whose decision is known.

    A short call's arithmetic takes less time than describing it does. So the callable that an
    implementation loads may have a method ``direct()`` that returns such an object, or None where
    it cannot be had. It is asked for one object per set of settings, and told the requests that
    the registry decided in its favour under them; where any of the settings changes, the object is
    dropped.

    It is asked only where nothing but the kernel takes part in a call: nothing is compiled, traced,
    transformed or profiled, and no mode is active.
    """

    def admit(self, request: Any) -> None:
        """Serve calls that make this request from now on; or pass over the request.

        Args:
            request: of the contract's request type.
        """

    def serve(self, *arguments: Any) -> Any | None:
        """Compute a call as the implementation does, with the same bits; None where it is not
        served.

        Nothing was checked before: what does not fit is answered with None, without an effect, and
        the component raises the error or finds another way. None too unless every tensor is of
        torch.Tensor or torch.nn.Parameter itself, dense, on the device, neither lazily negated nor
        zeros that are not stored, and not differentiated while gradients are recorded, and unless
        the request that the call makes was admitted.

        Args:
            arguments: the public function's, as the contract says, by position.
        """


class OffersFused(Protocol):
    """A callable of ``linear/1`` that serves calls with functions directly too."""

    def direct_fused(self, request: Any) -> DirectCall | None:
        """Return what serves calls with the functions of a request, and was admitted none.

        Its ``serve`` takes what that of ``direct()`` does, and the tensors that each function
        captured, as two tuples. None where functions like these are not served.

        Args:
            request: of ``torchyard_kernels.linear.contract.LinearRequest``; its sizes and its
                weight's format say nothing of what is admitted later.
        """
