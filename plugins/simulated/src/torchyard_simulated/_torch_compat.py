"""What torch does not publish and this package's Python uses of it.

No other module of the package names a private part of torch, but the module of the same name in
``_inductor``, which imports Inductor. :data:`PROBES` has a check of each entry, and :func:`missing`
runs them. All were tried on torch 2.13. The library in C++ includes torch's public headers alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import timedelta
from types import MappingProxyType, ModuleType
from typing import Any, Final

import torch
from torch import distributed

__all__ = [
    "PROBES",
    "backend_for",
    "group_over_gloo",
    "missing",
    "register_device_module",
]


def register_device_module(name: str, module: ModuleType) -> None:
    """Make a module ``torch.<name>``, in which torch.accelerator and others look functions up.

    torch's own notes on out-of-tree devices call it. Without it: an AttributeError when the device
    is loaded, which is reported as any failure to load.
    """
    torch._register_device_module(name, module)  # type: ignore[no-untyped-call]


def group_over_gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a process group of CPU tensors over gloo, that torch.distributed does not list.

    Without ``ProcessGroupGloo`` or ``_register_backend``: an AttributeError when a group is made.
    """
    group = distributed.ProcessGroup(store, rank, size)
    gloo = distributed.ProcessGroupGloo(store, rank, size, timeout=timeout)
    kind = distributed.ProcessGroup.BackendType.GLOO
    group._register_backend(torch.device("cpu"), kind, gloo)
    return group


def backend_for(
    device: torch.device, store: Any, rank: int, size: int, add: Callable[[Any], None]
) -> Any:
    """Return the backend that a library in C++ adds to a group, as torch's own Python object.

    A group is the one door through which a backend comes to Python without pybind11 in the
    library. Without ``_get_backend``: an AttributeError when a group is made.

    Args:
        device: of the backend.
        store, rank, size: of the group.
        add: adds the backend to the group that it is given.
    """
    group = distributed.ProcessGroup(store, rank, size)
    add(group)
    return group._get_backend(device)


def _has_groups() -> bool:
    names = ("_get_backend", "_register_backend", "boxed")
    return hasattr(distributed, "ProcessGroupGloo") and all(
        callable(getattr(distributed.ProcessGroup, name, None)) for name in names
    )


def _has_inductor() -> bool:
    return importlib.import_module("torchyard_simulated._inductor._torch_compat") is not None


PROBES: Final = MappingProxyType[str, Callable[[], bool]](
    {
        "groups": _has_groups,
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
