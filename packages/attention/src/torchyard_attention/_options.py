"""A call's ``kernel_options`` for plugins, as the text that the ops carry."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

__all__ = ["options_text", "parse_options"]

# torch's option that names one of its own kernels, and the value that names none.
_BACKEND: Final = "BACKEND"
_ANY: Final = "AUTO"


def options_text(kernel_options: Mapping[str, Any] | None) -> str:
    """Return the options that are named for a plugin, ``<plugin>.<name>``, as ``name=value;...``.

    The others are torch's, for its own kernels, and have no effect here.

    Raises:
        ValueError: torch's BACKEND demands one of torch's kernels.
        TypeError: a plugin's option is no integer.
    """
    if not kernel_options:
        return ""
    demand = kernel_options.get(_BACKEND, _ANY)
    if demand != _ANY:
        raise ValueError(
            f"kernel_options: BACKEND={demand!r} names a backend of torch; expected AUTO; demand "
            f"one with implementation='attention.flex'"
        )
    own = sorted((name, value) for name, value in kernel_options.items() if "." in name)
    for name, value in own:
        if type(value) is not int:
            raise TypeError(f"kernel_options: {name}: expected an integer, got {value!r}")
    return ";".join(f"{name}={value}" for name, value in own)


@lru_cache(maxsize=256)
def parse_options(text: str) -> tuple[tuple[str, int], ...]:
    """Return what :func:`options_text` wrote, by name."""
    pairs = (part.rpartition("=") for part in text.split(";") if part)
    return tuple((name, int(value)) for name, _, value in pairs)
