"""Ranks that ask one another for dumps, through the job's store.

Keys, below ``torchyard_flight/`` and the number of restarts: ``asked`` counts the requests,
``who/R`` is rank R's host and process, ``dump/R`` its latest dump and ``at/R`` the request that
this was for, ``last/R`` the dump that it left when it ended. A thread of its own talks to the
store, over a connection of its own, because the program's may be blocked in a wait and because a
store can hang.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from torchyard import restart_count
from torchyard_collectives._torch_compat import PrefixStore, default_store
from torchyard_collectives.flight._dump.document import parsed
from torchyard_collectives.flight._dump.folder import Box
from torchyard_collectives.flight._dump.process import is_alive
from torchyard_collectives.flight._dump.schema import from_json
from torchyard_collectives.flight._errors import FlightDumpError

__all__ = ["Exchange"]

_PREFIX: Final = "torchyard_flight"
_PERIOD: Final = 0.25
_MOST_BYTES: Final = 64 << 20
_PATIENCE: Final = timedelta(seconds=5)


class Exchange:
    """One rank's side.

    Args:
        box: where the dumps of the others go when this rank collects them.
        gather: seconds to wait for them.
        dump: writes this rank's dump, given the reason, and returns its text.
    """

    def __init__(self, box: Box, gather: float, dump: Callable[[str], str]) -> None:
        self._box, self._gather, self._dump = box, gather, dump
        self._wanted: str = ""
        self._done = threading.Event()
        self._wake = threading.Event()
        self._stop = False
        self._closed = False
        self._last = ""
        self._store: Any = None
        self._group: Any = None
        self._rank, self._size, self._seen = -1, 0, 0
        self._thread = threading.Thread(
            target=self._run, name="torchyard-flight-exchange", daemon=True
        )
        self._thread.start()

    def ask(self, reason: str, wait: float = 0.0) -> None:
        """Have all ranks dump; wait at most so many seconds until their dumps are here."""
        self._done.clear()
        self._wanted = reason
        self._wake.set()
        if wait:
            self._done.wait(wait)

    def leave(self, text: str, wait: float) -> None:
        """Leave the last dump of a process that ends, for a collector to find, and stop."""
        self._last = text
        self._stop = True
        self._wake.set()
        self._thread.join(wait)

    def close(self) -> None:
        """Stop, and write nothing more: dumps that are being collected are given up.

        A call of the store ends within its timeout, so the thread is waited for that long.
        """
        self._closed = self._stop = True
        self._wake.set()
        self._thread.join(2 * _PATIENCE.total_seconds())

    def _run(self) -> None:
        while not self._stop:
            self._wake.wait(_PERIOD)
            self._wake.clear()
            # A store whose host has gone is no reason to stop the program, nor to be silent: the
            # ranks still write their own files.
            try:
                if self._connected():
                    self._turn()
            except (RuntimeError, ValueError, OSError):
                self._store = None
            finally:
                if self._store is None and self._wanted:
                    self._wanted = ""
                    self._done.set()
        with contextlib.suppress(RuntimeError, ValueError, OSError):
            if self._last and self._store is not None:
                self._store.set(f"last/{self._rank}", _packed(self._last))

    def _connected(self) -> bool:
        if not dist.is_initialized():
            return self._store is not None
        group = dist.group.WORLD
        if self._group is not group:
            self._group = group
            self._rank, self._size = dist.get_rank(), dist.get_world_size()
            own = default_store().clone()
            own.set_timeout(_PATIENCE)
            # A store may outlive the processes that a launcher restarts.
            self._store = PrefixStore(f"{_PREFIX}/{restart_count()}", own)
            self._seen = self._store.add("asked", 0)
            who = {"host": socket.gethostname(), "pid": os.getpid()}
            self._store.set(f"who/{self._rank}", json.dumps(who))
        return self._store is not None

    def _turn(self) -> None:
        reason, self._wanted = self._wanted, ""
        asked = self._store.add("asked", 0)
        collects = False
        if reason and asked == self._seen:
            asked = self._store.add("asked", 1)
            # Of several that ask at once, the one whose request came first collects.
            collects = asked == self._seen + 1
        if asked == self._seen:
            return
        self._seen = asked
        text = self._dump(reason or "asked by another rank")
        self._store.set(f"dump/{self._rank}", _packed(text))
        self._store.set(f"at/{self._rank}", str(asked))
        if collects:
            self._collect(asked, reason)
        if reason:
            self._done.set()

    def _collect(self, number: int, reason: str) -> None:
        missing = set(range(self._size)) - {self._rank}
        deadline = time.monotonic() + self._gather
        while missing and not self._closed and time.monotonic() < deadline:
            for rank in sorted(missing):
                if self._answered(rank, number) and self._fetch(f"dump/{rank}", rank):
                    missing.discard(rank)
            if missing and all(self._ended(rank) for rank in missing):
                break
            time.sleep(0.05)
        if self._closed:
            return
        gone = {}
        for rank in sorted(missing):
            ended = self._ended(rank)
            if not self._fetch(f"last/{rank}", rank) and ended:
                gone[rank] = ended
        self._box.put_job(self._size, reason, gone)

    def _answered(self, rank: int, number: int) -> bool:
        key = f"at/{rank}"
        return self._store.check([key]) and int(self._store.get(key)) >= number

    def _fetch(self, key: str, rank: int) -> bool:
        """Write the dump at a key into the folder; False if there is none."""
        if not self._store.check([key]):
            return False
        text = _unpacked(self._store.get(key))
        try:
            history = from_json(parsed(text, key), key)
        except (FlightDumpError, ValueError, RecursionError):
            return False
        whose = self._store.check([f"who/{rank}"]) and json.loads(self._store.get(f"who/{rank}"))
        # A dump of another process is one of before a restart.
        if history.rank != rank or (whose and int(whose["pid"]) != history.pid):
            return False
        self._box.collect(history, text)
        return True

    def _ended(self, rank: int) -> str:
        """Return how it is known that a rank's process on this host has ended; else nothing."""
        if not self._store.check([f"who/{rank}"]):
            return ""
        who = json.loads(self._store.get(f"who/{rank}"))
        if who["host"] != socket.gethostname() or is_alive(int(who["pid"])):
            return ""
        return f"its process, {who['pid']} on {who['host']}, has ended and left no dump"


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode(), 1)


def _unpacked(data: bytes) -> str:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data, _MOST_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"expected a dump of at most {_MOST_BYTES} bytes")
    return text.decode()
