"""The groups that move tensors of other devices, beside one that shares memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
from torch._C._distributed_c10d import PrefixStore, Store, _DistributedBackendOptions
from torch.distributed import Backend, ProcessGroup
from torch.distributed import distributed_c10d as c10d

__all__ = ["OtherDevices"]


def _nccl(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    options = c10d.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return c10d.ProcessGroupNCCL(store, rank, size, options)


def _gloo(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    return c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)


def _xccl(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    options = c10d.ProcessGroupXCCL.Options()
    options._timeout = timeout
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
            if backend is None or (
                backend not in _MAKERS and backend.upper() not in Backend._plugins
            ):
                raise ValueError(
                    f"shm: expected tensors on cpu, got one on {device}; name a backend for them "
                    f"too, as in init_process_group('cpu:shm,{device.type}:nccl')"
                )
            self._groups[device.type] = self._made(device, backend, name)
        return self._groups[device.type]

    def _made(self, device: torch.device, backend: str, name: str) -> ProcessGroup:
        store = PrefixStore(f"{device.type}/", self._store)
        plugin: Any = Backend._plugins.get(backend.upper())
        if backend in _MAKERS:
            made = _MAKERS[backend](store, self._rank, self._size, self._timeout)
        elif plugin.extended_api:
            options = _DistributedBackendOptions()
            options.store, options.group_rank, options.group_size = store, self._rank, self._size
            options.timeout, options.group_id = self._timeout, name
            made = plugin.creator_fn(options, None)
        else:
            made = plugin.creator_fn(store, self._rank, self._size, self._timeout)
        if isinstance(made, ProcessGroup):
            return made
        group = ProcessGroup(store, self._rank, self._size)
        kind = Backend.backend_type_map[backend]
        group._set_default_backend(kind)
        group._register_backend(torch.device(device.type), kind, made)
        group._set_group_name(c10d.GroupName(f"{name}/{device.type}"))
        return group

    def shutdown(self) -> None:
        """End them."""
        for group in self._groups.values():
            group.shutdown()
        self._groups.clear()
