"""The process groups for tensors of other devices."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
from torch.distributed import ProcessGroup
from torch.distributed import distributed_c10d as c10d

from torchyard_collectives._torch_compat import (
    PrefixStore,
    Store,
    backend_creator,
    new_backend,
    with_timeout,
    wrap_backend,
)

__all__ = ["OtherDevices"]


def _nccl(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    options = with_timeout(c10d.ProcessGroupNCCL.Options(), timeout)
    return c10d.ProcessGroupNCCL(store, rank, size, options)


def _gloo(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    return c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)


def _xccl(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    options = with_timeout(c10d.ProcessGroupXCCL.Options(), timeout)
    return c10d.ProcessGroupXCCL(store, rank, size, options)


_MAKERS: Final[dict[str, Callable[[Store, int, int, timedelta], Any]]] = {
    "gloo": _gloo,
    "nccl": _nccl,
    "xccl": _xccl,
}


class OtherDevices:
    """What ``"cpu:shm,cuda:nccl"`` names besides shm, made when a tensor needs it.

    torch.distributed takes the first process group written in Python for all devices of a group;
    this does what it would have done for the others.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._groups: dict[str, ProcessGroup] = {}

    def group(self, device: torch.device, config: str, name: str) -> ProcessGroup:
        """Return the group for tensors of a device.

        Args:
            device: the tensors'.
            config: the group's backends, written ``device:backend,device:backend``.
            name: the group's.

        Raises:
            ValueError: the configuration names none for it.
        """
        if device.type not in self._groups:
            named = dict(part.split(":", 1) for part in config.split(",") if ":" in part)
            backend = named.get(device.type)
            if backend is None or (backend not in _MAKERS and backend_creator(backend) is None):
                raise ValueError(
                    f"shm: expected tensors on cpu, got one on {device}; name a backend for them "
                    f"too, as in init_process_group('cpu:shm,{device.type}:nccl')"
                )
            self._groups[device.type] = self._made(device, backend, name)
        return self._groups[device.type]

    def _made(self, device: torch.device, backend: str, name: str) -> ProcessGroup:
        store = PrefixStore(f"{device.type}/", self._store)
        rank, size = self._rank, self._size
        if backend in _MAKERS:
            made = _MAKERS[backend](store, rank, size, self._timeout)
        else:
            creator = backend_creator(backend)
            made = new_backend(creator, store, rank, size, self._timeout, name)
        if isinstance(made, ProcessGroup):
            return made
        return wrap_backend(made, store, rank, size, device, backend, name)

    def shutdown(self) -> None:
        """End them."""
        for group in self._groups.values():
            group.shutdown()
        self._groups.clear()
