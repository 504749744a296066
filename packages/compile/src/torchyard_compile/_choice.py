"""What the registry chooses for a call of torch's, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torchyard import Decision, UnsupportedError

__all__ = ["LeftAlone", "implementation_of"]

# What these offer are compositions of torch's own operators, for devices without a plugin.
_COMPOSITIONS: Final = frozenset({"attention", "kernels"})


class LeftAlone(Exception):
    """A call that torch computes as before; the message says why."""


def implementation_of(decide: Callable[[], Decision]) -> tuple[str, str]:
    """Return the implementation of a device's plugin that computes a call, and why that.

    Args:
        decide: returns the registry's decision.

    Raises:
        LeftAlone: there is none, or one that is made of torch's own operators is chosen.
    """
    try:
        decision = decide()
    except (TypeError, ValueError, UnsupportedError) as error:
        raise LeftAlone(f"the op of ours refuses it: {error}") from error
    chosen = decision.chosen
    if chosen is None:
        raise LeftAlone("no implementation supports it")
    if chosen.plugin in _COMPOSITIONS:
        raise LeftAlone(
            f"the registry chooses {chosen.name}, which is made of torch's own operators"
        )
    return chosen.name, f"the registry's choice by {decision.source}"
