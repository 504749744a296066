"""Find the ranks that share a host, and map one segment of memory in all of them."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

import torch.distributed as dist

import torchyard
from torchyard_collectives._torch_compat import Store
from torchyard_collectives.contract import CONTRACT, SharedMemory, SharedMemoryRequest
from torchyard_collectives.shm._errors import RankLostError, RankTimeoutError, SharedMemoryError

__all__ = ["Member", "Neighbours", "find_neighbours", "open_memory", "share_segment"]

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a group, as it introduces itself.

    Attributes:
        rank: its number in the group.
        global_rank: its number in the default group.
        host: what it has in common with the ranks that it can share memory with.
        pid: its process's number there.
        start: distinguishes that process from later ones with its number.
    """

    rank: int
    global_rank: int
    host: str
    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The members of a group by host.

    Attributes:
        hosts: the members of each host, in the order of ranks; hosts by their first rank.
        own: where in ``hosts`` this rank's is.
    """

    hosts: tuple[tuple[Member, ...], ...]
    own: int


def open_memory(ranks: int) -> SharedMemory:
    """Return the implementation of ``shared_memory/1`` for so many ranks on this host.

    Raises:
        torchyard.UnsupportedError: nothing does; the message says why.
    """
    opened = torchyard.resolve(CONTRACT, SharedMemoryRequest("cpu", ranks))
    return cast("Callable[[], SharedMemory]", opened)()


def _host() -> str:
    """Return a name for what this process can share memory with.

    Processes see one another under /proc if they have the same kernel and process namespace. Those
    of another network are taken for another host, as containers are.
    """
    spaces = [os.stat(f"/proc/self/ns/{name}").st_ino for name in ("pid", "net")]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {spaces[0]} {spaces[1]} {torchyard.plugin_setting('collectives', 'host')}"


def find_neighbours(
    store: Store, rank: int, global_ranks: list[int], memory: SharedMemory
) -> Neighbours:
    """Introduce this rank to the others, and return all of them by host."""
    pid = os.getpid()
    store.set(f"member/{rank}", json.dumps([_host(), pid, memory.start_time(pid)]))
    hosts: dict[str, list[Member]] = {}
    for other, global_rank in enumerate(global_ranks):
        host, its_pid, start = json.loads(store.get(f"member/{other}"))
        hosts.setdefault(host, []).append(Member(other, global_rank, host, its_pid, start))
    grouped = tuple(tuple(members) for members in hosts.values())
    own = next(i for i, members in enumerate(grouped) if rank in {m.rank for m in members})
    return Neighbours(grouped, own)


def share_segment(
    store: Store,
    memory: SharedMemory,
    members: tuple[Member, ...],
    rank: int,
    timeout: timedelta,
) -> object:
    """Return a group over one segment of memory for the members, who are on this host.

    The segment never has a name: the first member makes it, the others open it through that
    member's file table. It ends with the last process that maps it, however that ends.

    Raises:
        SharedMemoryError: it cannot be shared, or a member ended or did not come in time.
    """
    position = next(i for i, member in enumerate(members) if member.rank == rank)
    first = members[0]
    key = f"segment/{first.rank}"
    if position == 0:
        file = memory.make_segment(len(members))
        store.set(key, str(file))
    else:
        file = _open_other(store, key, first, memory, timeout)
    try:
        return memory.join(
            file, position, tuple(m.pid for m in members), tuple(m.start for m in members)
        )
    except OSError as error:
        raise SharedMemoryError(
            f"shm: cannot map the group's memory: {error}; expected the same version of torchyard "
            "on all ranks, and room for it"
        ) from error
    finally:
        # The first one's stays open until all have come: see LocalEngine.
        if position != 0:
            os.close(file)


def _open_other(
    store: Store, key: str, owner: Member, memory: SharedMemory, timeout: timedelta
) -> int:
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        with contextlib.suppress(dist.DistStoreError, RuntimeError):
            store.wait([key], timedelta(seconds=_POLL_SECONDS))
            break
        named = f"rank {owner.global_rank} (process {owner.pid})"
        if memory.start_time(owner.pid) != owner.start:
            raise RankLostError(f"shm: {named} died while the group was made", [owner.global_rank])
        if time.monotonic() > deadline:
            raise RankTimeoutError(
                f"shm: {named} did not come within {timeout.total_seconds():g} s to make the group",
                [owner.global_rank],
            )
    path = f"/proc/{owner.pid}/fd/{int(store.get(key))}"
    try:
        return os.open(path, os.O_RDWR)
    except OSError as error:
        raise SharedMemoryError(
            f"shm: rank {owner.global_rank}'s memory cannot be opened: {error}; expected ranks of "
            "one host to run as one user and to see one another under /proc; give them different "
            "TORCHYARD_COLLECTIVES_HOST to keep them apart",
            [owner.global_rank],
        ) from error
