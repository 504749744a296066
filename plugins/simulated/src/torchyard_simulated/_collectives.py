"""torch.distributed on the device: a backend ``"simulated"``, over gloo and loopback or a network.

``init_process_group("simulated")``, or none named, which takes the default of each device. The
work is in the library, ``csrc/distributed``; this makes the host's part of each group.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from torchyard_simulated._loading import DEVICE

__all__ = ["register_collectives"]


def register_collectives() -> None:
    """Tell torch.distributed of the backend; does nothing in a torch without distributed."""
    if distributed.is_available():
        distributed.Backend.register_backend(DEVICE, _create, devices=[DEVICE])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Make the backend of one group, as torch.distributed asks for it.

    Raises:
        RuntimeError: this torch has no gloo.
    """
    if not distributed.is_gloo_available():
        raise RuntimeError(
            "torchyard-simulated: collectives: expected a torch with gloo, got one without; "
            "install a build of torch that has it"
        )
    from torchyard_simulated._torch_compat import backend_for, group_over_gloo

    host = group_over_gloo(store, rank, size, timeout)

    def add_backend(group: Any) -> None:
        torch.ops.torchyard_simulated.add_backend(host.boxed(), group.boxed())

    return backend_for(torch.device(DEVICE), store, rank, size, add_backend)
