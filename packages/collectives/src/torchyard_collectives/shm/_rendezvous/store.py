"""A store that holds nothing of processes that were here before.

A launcher that restarts a job's processes may give the new ones the store of the old ones, with the
same keys. So the ranks agree on a word that no earlier process can have written, and prefix keys.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from torchyard_collectives._torch_compat import PrefixStore, Store
from torchyard_collectives.shm._errors import RankTimeoutError

__all__ = ["fresh_store"]

_POLL_SECONDS: Final = 0.002


def fresh_store(store: Store, rank: int, members: Sequence[int], timeout: timedelta) -> Store:
    """Return the part of a store that is these processes' own; all ranks call this.

    Rank 0 answers whatever another rank has called out, an earlier process of that rank perhaps,
    until one has answered with a word of rank 0's own making, which an earlier one cannot know.

    Args:
        store: the group's.
        rank: this rank among the group's.
        members: the group's ranks as numbered in the default group.
        timeout: of waiting for the others.

    Raises:
        RankTimeoutError: a rank has not come; names it.
    """
    own = secrets.token_hex(8)
    deadline = time.monotonic() + timeout.total_seconds()
    if rank:
        store.set(f"called/{rank}", own)
        _await(store, f"answer/{own}", members[0], deadline, timeout)
        word = store.get(f"answer/{own}").decode()
        store.set(f"heard/{word}/{rank}", own)
        return PrefixStore(word, store)
    waiting = set(range(1, len(members)))
    answered: dict[int, bytes] = {}
    while waiting:
        for other in sorted(waiting):
            if store.check([f"heard/{own}/{other}"]):
                waiting.discard(other)
            elif store.check([f"called/{other}"]):
                called = store.get(f"called/{other}")
                if answered.get(other) != called:
                    store.set(f"answer/{called.decode()}", own)
                    answered[other] = called
        if waiting:
            _check_time(members[min(waiting)], deadline, timeout)
            time.sleep(_POLL_SECONDS)
    return PrefixStore(own, store)


def _await(store: Store, key: str, other: int, deadline: float, timeout: timedelta) -> None:
    while not store.check([key]):
        _check_time(other, deadline, timeout)
        time.sleep(_POLL_SECONDS)


def _check_time(other: int, deadline: float, timeout: timedelta) -> None:
    if time.monotonic() > deadline:
        raise RankTimeoutError(
            f"making the group: rank {other} did not come within the timeout of "
            f"{timeout.total_seconds():g} s; look for what kept it, or raise the timeout",
            [other],
        )
