"""Making a group: find the ranks' hosts, and choose the engine for them."""

from __future__ import annotations

from datetime import timedelta

from torchyard_collectives._torch_compat import Store
from torchyard_collectives.shm._engines.engine import Engine
from torchyard_collectives.shm._engines.local import LocalEngine
from torchyard_collectives.shm._group.group import SharedMemoryGroup
from torchyard_collectives.shm._rendezvous.neighbours import find_neighbours, open_memory
from torchyard_collectives.shm._rendezvous.store import fresh_store

__all__ = ["make_group"]


def make_group(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    name: str,
    global_ranks: list[int],
) -> SharedMemoryGroup:
    """Return a group of ``size`` ranks; all of them call this.

    Args:
        store: the group's own.
        rank, size: this rank among the group's, and how many there are.
        timeout: of making it, and of operations that give none.
        name: the group's.
        global_ranks: its members as numbered in the default group; empty for that group itself.

    Raises:
        torchyard.UnsupportedError: nothing implements ``shared_memory/1`` here.
        SharedMemoryError: the memory cannot be shared, or a rank ended meanwhile.
    """
    members = global_ranks or list(range(size))
    store = fresh_store(store, rank, members, timeout)
    memory = open_memory(size)
    neighbours = find_neighbours(store, rank, members, memory)
    engine: Engine
    if len(neighbours.hosts) == 1:
        engine = LocalEngine(store, memory, neighbours.hosts[0], rank, name, timeout)
    else:
        from torchyard_collectives.shm._engines.hierarchical import HierarchicalEngine

        engine = HierarchicalEngine(store, memory, neighbours, rank, name, timeout)
    return SharedMemoryGroup(store, rank, size, timeout, engine, name)
