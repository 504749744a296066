"""Calls whose decision is known: they go to their kernel with nothing around it.

A family keeps one :class:`Calls` per contract. Its public function asks :meth:`Calls.served` first,
and its op's kernel takes the implementation from :meth:`Calls.chosen`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from torchyard import registry
from torchyard_programs import is_undisturbed

if TYPE_CHECKING:
    from torchyard import Request
    from torchyard_kernels.fast_path import DirectCall

__all__ = ["Calls", "foremost"]

_Item = TypeVar("_Item")


def foremost(item: _Item, items: Sequence[_Item]) -> list[_Item]:
    """Return items with one of them first, since the next call is most likely like the last.

    Another list, since threads read the one before.
    """
    return [item, *(other for other in items if other is not item)]


class _Known:
    """What the kernels that were chosen under one set of settings offer.

    Attributes:
        serve: the ``serve`` of each that offers a direct call.
    """

    __slots__ = ("_kernels", "serve")

    def __init__(self) -> None:
        self.serve: tuple[Callable[..., Any], ...] = ()
        self._kernels: list[tuple[object, DirectCall | None]] = []

    def of(self, kernel: object) -> DirectCall | None:
        """Return the kernel's direct call, made on the first request; None without one."""
        for known, direct in self._kernels:
            if known is kernel:
                return direct
        make = getattr(kernel, "direct", None)
        found: DirectCall | None = None if make is None else make()
        self._kernels.append((kernel, found))
        if found is not None:
            self.serve = (*self.serve, found.serve)
        return found


class Calls:
    """A contract's calls.

    Args:
        contract: ``op/version``.
    """

    __slots__ = ("_key", "contract")

    def __init__(self, contract: str) -> None:
        self.contract = contract
        self._key = f"{contract}: direct"

    def served(self, *arguments: Any) -> Any | None:
        """Compute a call like one that was decided before; None, without an effect, for any other.

        Of the arguments nothing is taken for granted. That nothing is being compiled is for the
        caller to know.

        Args:
            arguments: what the contract says that a direct call takes, by position.
        """
        for serve in self.serving():
            found = serve(*arguments)
            if found is not None:
                return found
        return None

    def serving(self) -> tuple[Callable[..., Any], ...]:
        """Return what :meth:`served` asks one after another, for a caller that has no time for it.

        Nothing where something besides a kernel takes part in the call.
        """
        known: _Known | None = registry().conclusions().get(self._key)
        return known.serve if known is not None and is_undisturbed() else ()

    def chosen(self, request: Request) -> Callable[..., Any]:
        """Return the callable that serves a request, and let its like be served directly.

        Raises:
            torchyard.UnsupportedError: nothing may serve it.
        """
        # From before the decision: then a change that comes between the two drops it.
        conclusions = registry().conclusions()
        kernel = registry().resolve(self.contract, request)
        direct = conclusions.setdefault(self._key, _Known()).of(kernel)
        if direct is not None:
            direct.admit(request)
        return kernel
