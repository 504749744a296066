"""What the registry chooses for a call of torch's, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torchyard import Decision, Source, UnsupportedError

__all__ = ["LeftAlone", "SettledError", "implementation_of"]

# What these offer are compositions of torch's own operators, for devices without a plugin.
_COMPOSITIONS: Final = frozenset({"attention", "kernels"})


class LeftAlone(Exception):
    """A call that torch computes as before; the message says why."""


class SettledError(LeftAlone):
    """One that somebody demanded, locked or measured to be torch's."""


def implementation_of(decide: Callable[[], Decision]) -> tuple[str, str]:
    """Return the implementation of a device's plugin that computes a call, and why that.

    Args:
        decide: returns the registry's decision.

    Raises:
        LeftAlone: there is none, or the lists choose one that is made of torch's own operators.
        SettledError: such a one is chosen by something else than the lists.
    """
    try:
        decision = decide()
    except (TypeError, ValueError, UnsupportedError) as error:
        raise LeftAlone(f"the op of ours refuses it: {error}") from error
    chosen = decision.chosen
    if chosen is None:
        raise LeftAlone("no implementation supports it")
    if chosen.plugin in _COMPOSITIONS:
        kind = LeftAlone if decision.source is Source.ORDER else SettledError
        raise kind(
            f"the registry chooses {chosen.name} by {decision.source}, which is made of torch's "
            f"own operators"
        )
    return chosen.name, f"the registry's choice by {decision.source}"
