"""Dispatch of repeated calls: the decision cache, and the fast path around torch's dispatcher.

The registry decides which implementation computes a request. What follows from its decisions is
stored in the decision cache, which is replaced as soon as anything that decides changes: a setting,
the demands of ``torchyard.use``, a plugin's state, or what torch offers.

Torch's dispatcher, and the Python around it, take longer than the arithmetic of a short call. So
an implementation may offer a path to its kernel that reads a call's arguments itself, and a
:class:`FastPath` calls it for requests that were decided in its favour before, where nothing but
the kernel takes part in a call. There is one such path for all ops.

Importing this module imports torch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from torchyard._environ import DECIDING, ENVIRON, UNSET, none_set, process_environ
from torchyard._registry.policy import context_demands
from torchyard._registry.registry import _process, registry
from torchyard.torch_compat import (
    dispatch_mode_count,
    forward_ad_level,
    function_mode_count,
    is_autocast_enabled_anywhere,
    is_legacy_batched,
    is_profiling,
    is_tracing,
    is_transform_active,
    is_zero_tensor,
)

__all__ = [
    "FastPath",
    "KernelPath",
    "OffersFastPath",
    "decision_cache",
    "is_plain_call",
    "no_active_modes",
]

# Programs of more structures than this push all others out.
_MOST_KEYS: Final = 256
_MOST_PATHS: Final = 256
_PLAIN: Final = (Tensor, torch.nn.Parameter)


class KernelPath(Protocol):
    """A path to a kernel, which an implementation offers for repeated calls.

    A path is asked only where nothing but the kernel takes part in a call: nothing is compiled,
    traced, transformed or profiled, and no mode is active.
    """

    def try_call(self, *arguments: Any) -> Any | None:
        """Compute a call as the implementation does, with the same bits; None where it cannot.

        Nothing was checked before. None, without an effect, unless the request that the call makes
        was enabled, and unless every tensor is a dense torch.Tensor or torch.nn.Parameter on the
        device, whose storage holds all of its elements, and which is neither lazily negated, nor
        part of a transform, nor requires a gradient while gradients are recorded.

        Args:
            arguments: as the contract says, by position.
        """

    def enable(self, request: Any, *details: Any) -> bool:
        """Compute calls that make this request from now on.

        Args:
            request: of the contract's request type.
            details: what else the contract says.

        Returns:
            False where the path was made for calls of another kind, and another path is needed.
        """

    def clear(self) -> None:
        """Forget every request that was enabled."""


class OffersFastPath(Protocol):
    """A callable that an implementation loads, and that offers paths to its kernels."""

    def fast_path(self, request: Any) -> KernelPath | None:
        """Return a path that computes calls like the request's, with nothing enabled.

        None where there is no path for them, as where torch lacks what reading tensors needs. A
        path is dropped as soon as anything that decides changes.
        """


class FastPath:
    """The calls of one contract that are computed past torch's dispatcher.

    Args:
        contract: ``op/version``.
    """

    __slots__ = ("_paths_key", "contract")

    def __init__(self, contract: str) -> None:
        self.contract = contract
        self.clear()

    def try_call(self, key: Hashable, *arguments: Any) -> Any | None:
        """Compute a call whose request was enabled; None, without an effect, for any other.

        Nothing is assumed of the arguments. The caller makes sure that nothing is being compiled.

        Args:
            key: what the call was enabled under.
            arguments: as the contract says, by position.
        """
        # decision_cache() and no_active_modes() in place: their frames cost as much as the checks.
        known = _process[0] if _process else registry()
        settings, demands, cache, caches = known._latest
        if (
            settings is not UNSET
            or process_environ() is not ENVIRON
            or not none_set(DECIDING)
            or demands is not context_demands()
            or caches is not known._decision_caches
            or not known._saw_torch
        ):
            cache = known.decision_cache()
        paths: _Paths | None = cache.get(self._paths_key)
        if paths is None:
            return None
        calls = paths.calls.get(key)
        if (
            calls is None
            or dispatch_mode_count()
            or function_mode_count()
            or is_transform_active()
            or is_tracing()
            or is_profiling()
            or is_autocast_enabled_anywhere()
            or forward_ad_level() >= 0
        ):
            return None
        for call in calls:
            found = call(*arguments)
            if found is not None:
                if call is not calls[0]:
                    # The next call is most likely like this one. Other threads read the old tuple.
                    paths.calls[key] = (call, *(other for other in calls if other is not call))
                return found
        return None

    def enable(
        self,
        cache: dict[Any, Any],
        implementation: object,
        request: Any,
        *details: Any,
        key: Hashable = None,
    ) -> None:
        """Let calls that make a request go to the implementation directly, where it offers that.

        Args:
            cache: :func:`decision_cache`, from before the decision: a change that comes between the
                two drops what is enabled here.
            implementation: what the registry decided for, with no demand of the call itself.
            request: what it decided.
            details: what else a path of the contract needs to know.
            key: what such calls will pass to :meth:`try_call`.
        """
        offer = getattr(implementation, "fast_path", None)
        if offer is not None:
            paths: _Paths = cache.setdefault(self._paths_key, _Paths())
            paths.enable(key, implementation, offer, request, details)

    def clear(self) -> None:
        """Forget every request that was enabled, under any settings."""
        # What is stored under the old key is no longer found.
        self._paths_key = object()


class _Paths:
    """The paths of a contract under one set of decisions.

    Attributes:
        calls: the ``try_call`` of each path, by the key of its calls.
    """

    __slots__ = ("_lock", "_offered", "calls")

    def __init__(self) -> None:
        self.calls: dict[Hashable, tuple[Callable[..., Any], ...]] = {}
        self._offered: dict[Hashable, list[tuple[object, KernelPath]]] = {}
        self._lock = threading.Lock()

    def enable(
        self,
        key: Hashable,
        implementation: object,
        offer: Callable[[Any], KernelPath | None],
        request: Any,
        details: tuple[Any, ...],
    ) -> None:
        with self._lock:
            offered = self._offered.get(key, [])
            for owner, path in offered:
                if owner is implementation and path.enable(request, *details):
                    return
            if len(offered) >= _MOST_PATHS:
                return
            made = offer(request)
            if made is None or not made.enable(request, *details):
                return
            if key not in self._offered and len(self._offered) >= _MOST_KEYS:
                self._offered.clear()
                self.calls.clear()
            self._offered[key] = [*offered, (implementation, made)]
            self.calls[key] = (*self.calls.get(key, ()), made.try_call)


def decision_cache() -> dict[Any, Any]:
    """Return where to store what follows from decisions; see ``Registry.decision_cache``."""
    known = _process[0] if _process else registry()
    # The registry's own look-up, without the frames that it takes.
    settings, demands, found, caches = known._latest
    if (
        settings is UNSET
        and process_environ() is ENVIRON
        and none_set(DECIDING)
        and demands is context_demands()
        and caches is known._decision_caches
        and known._saw_torch
    ):
        return found
    return known.decision_cache()


def no_active_modes() -> bool:
    """Return whether no mode, transform, trace, profile, autocast or forward derivative is active.

    The caller makes sure that nothing is being compiled.
    """
    return not (
        dispatch_mode_count()
        or function_mode_count()
        or is_transform_active()
        or is_tracing()
        # A profile names the op.
        or is_profiling()
        # It casts the arguments of the operators of torch that an implementation calls.
        or is_autocast_enabled_anywhere()
        or forward_ad_level() >= 0
    )


def is_plain_call(tensors: Iterable[Tensor]) -> bool:
    """Return whether nothing but a kernel would take part in a call on some tensors.

    Then the call need not go through torch's dispatcher. A mode, a transform, a trace, a profile,
    a tensor subclass and compilation do take part. The caller knows whether gradients are wanted.
    Reads no data.
    """
    if torch.compiler.is_compiling() or not no_active_modes():
        return False
    return all(
        # The dispatcher gives a kernel a copy of a lazily negated tensor, or of one of zeros that
        # are not stored.
        type(tensor) in _PLAIN
        # The dispatcher computes tensors without values by the fake kernel.
        and not tensor.is_meta
        and not tensor.is_neg()
        and not is_zero_tensor(tensor)
        and not is_legacy_batched(tensor)
        for tensor in tensors
    )
