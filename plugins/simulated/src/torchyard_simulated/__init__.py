"""A simulated accelerator on torch's PrivateUse1 slot.

Importing this package does not import torch, and installing it changes nothing: the device takes
part only where it is asked for, by :func:`load`, or by ``TORCHYARD_PRIVATEUSE1=simulated`` in the
environment, with which torch's device autoload loads it inside of ``import torch``.
"""

from torchyard_simulated._loading import (
    DeviceLoadError,
    LoadState,
    LoadStatus,
    autoload,
    is_asked_for,
    load,
    status,
)

__all__ = [
    "DeviceLoadError",
    "LoadState",
    "LoadStatus",
    "autoload",
    "is_asked_for",
    "load",
    "status",
]

__version__ = "0.1.0.dev0"
