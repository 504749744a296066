"""Calls whose decision is known: they go to their kernel with nothing around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from torchyard import registry
from torchyard_attention._mods._recordings import Recording, is_kept
from torchyard_attention._ops._layout import in_order
from torchyard_attention.contract import AttentionCall, AttentionRequest, Forward, ScoreKind
from torchyard_programs import is_undisturbed

if TYPE_CHECKING:
    from torchyard_attention.direct import DirectForward, DirectMask

__all__ = ["remember", "served"]

_KEY: Final = "attention/1: direct"

_deterministic = torch._C._get_deterministic_algorithms


class _Direct:
    """What the forwards that were chosen under one set of settings offer.

    Attributes:
        serve: the ``serve`` of each that offers a direct forward.
    """

    def __init__(self) -> None:
        self.serve: tuple[Callable[..., Any], ...] = ()
        self._known: list[tuple[Forward, DirectForward | None]] = []

    def of(self, forward: Forward) -> DirectForward | None:
        """Return the forward's direct forward, made on the first request; None without one."""
        for known, direct in self._known:
            if known is forward:
                return direct
        make = getattr(forward, "direct", None)
        found: DirectForward | None = None if make is None else make()
        self._known.append((forward, found))
        if found is not None:
            self.serve = (*self.serve, found.serve)
        return found


def served(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: DirectMask | None,
    scale: float | None,
    enable_gqa: bool,
    lse: bool,
    score: Recording | None,
) -> Tensor | tuple[Tensor, Tensor] | None:
    """Compute a call like one that was decided before; None, without an effect, for any other.

    Of the arguments nothing is taken for granted. That nothing is being compiled is for the caller
    to know.
    """
    direct = registry().conclusions().get(_KEY)
    if direct is None or not is_undisturbed() or _deterministic():
        return None
    for serve in direct.serve:
        found: Tensor | tuple[Tensor, Tensor] | None = serve(
            query, key, value, mask, scale, enable_gqa, lse, score
        )
        if isinstance(found, tuple):
            return in_order(found[0], query), *found[1:]
        if found is not None:
            return in_order(found, query)
    return None


def remember(
    conclusions: dict[str, Any], forward: Forward, request: AttentionRequest, call: AttentionCall
) -> None:
    """Let calls that make the request be served directly, where the forward can.

    Args:
        conclusions: the registry's, from before it decided.
        forward: what it decided for, with no demand of the call itself.
        request: what it decided.
        call: what made the request.
    """
    if request.grad or request.score is ScoreKind.GENERAL:
        return
    # Another call finds this one's program only where the recording was kept.
    if call.score_mod is not None and not is_kept(call.score_mod.text):
        return
    direct = conclusions.setdefault(_KEY, _Direct()).of(forward)
    if direct is not None:
        direct.admit(request, call)
