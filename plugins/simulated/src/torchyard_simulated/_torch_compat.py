"""What torch does not publish and this package's Python uses of it.

No other module of the package names a private part of torch, but the module of the same name in
``_inductor``, which imports Inductor. :data:`PROBES` has a check of each entry, and :func:`missing`
runs them. All were tried on torch 2.13. The library in C++ includes torch's public headers alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import MappingProxyType, ModuleType
from typing import Final

import torch

__all__ = ["PROBES", "missing", "register_device_module"]


def register_device_module(name: str, module: ModuleType) -> None:
    """Make a module ``torch.<name>``, in which torch.accelerator and others look functions up.

    torch's own notes on out-of-tree devices call it. Without it: an AttributeError when the device
    is loaded, which is reported as any failure to load.
    """
    torch._register_device_module(name, module)  # type: ignore[no-untyped-call]


def _has_inductor() -> bool:
    return importlib.import_module("torchyard_simulated._inductor._torch_compat") is not None


PROBES: Final = MappingProxyType[str, Callable[[], bool]](
    {
        "inductor": _has_inductor,
        "register_device_module": lambda: callable(torch._register_device_module),
    }
)


def missing() -> tuple[str, ...]:
    """Return the entries that this torch does not have."""

    def holds(probe: Callable[[], bool]) -> bool:
        try:
            return probe()
        except Exception:  # whatever torch raises where a part is another one
            return False

    return tuple(name for name, probe in PROBES.items() if not holds(probe))
