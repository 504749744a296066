"""A simulated accelerator on torch's PrivateUse1 slot.

Importing this package does not import torch. The device is loaded when torch is imported, by
torch's device autoload, or by :func:`load`.
"""

from torchyard_simulated._loading import (
    DeviceLoadError,
    LoadState,
    LoadStatus,
    autoload,
    load,
    status,
)

__all__ = ["DeviceLoadError", "LoadState", "LoadStatus", "autoload", "load", "status"]

__version__ = "0.1.0.dev0"
