"""torchyard on Apple GPUs: random distributions, recorded programs in Metal, and their kernels.

What a launch needs is data, which ``torchyard_conformance.metal`` runs on any machine; only
``_runner`` touches a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchyard_mps._checks import IndexRangeError, checked, errors, synchronize

__all__ = ["IndexRangeError", "checked", "errors", "synchronize"]

__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> Any:
    # Imports torch, which the registry does not need to know the plugin.
    if name in __all__:
        from torchyard_mps import _checks

        return getattr(_checks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
