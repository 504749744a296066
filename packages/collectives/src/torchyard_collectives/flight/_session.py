"""The recorder at work in this process: switched on, watched, dumped, switched off."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Final

import torch.distributed as dist

from torchyard import arguments
from torchyard_collectives.flight._dump.exchange import Exchange
from torchyard_collectives.flight._dump.folder import Box
from torchyard_collectives.flight._dump.schema import dumps
from torchyard_collectives.flight._errors import FlightSettingError
from torchyard_collectives.flight._history import Ending, EndingKind
from torchyard_collectives.flight._record.endings import Endings
from torchyard_collectives.flight._record.intercept import Interception
from torchyard_collectives.flight._record.recorder import Recorder
from torchyard_collectives.flight._settings import Settings

__all__ = ["Session", "disable", "dump", "enable", "is_enabled", "start"]

_TICK: Final = 0.1
_LAST_WORDS: Final = 2.0
# Seconds: longer than anyone waits, and no more than a thread can.
_LONGEST: Final = 1e9

_session: Session | None = None


class Session:
    """All parts of a recorder that is on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process = os.getpid()
        self._writing = threading.Lock()
        self._closed = False
        self._ending = Ending()
        self._box = Box(settings.folder)
        self.recorder = Recorder(settings.capacity, self._box.folder)
        self._interception = Interception(self.recorder)
        self._endings = Endings(self._finish)
        self._exchange = Exchange(self._box, settings.gather, self.write)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="torchyard-flight-watchdog", daemon=True
        )
        self._thread.start()

    def write(self, reason: str) -> str:
        """Write this rank's dump into the folder and return it; nothing while it has no rank."""
        if self._rank() < 0:
            return ""
        with self._writing:
            if self._closed:
                return ""
            text = dumps(self.recorder.history(reason, self._ending))
            # A full disk must not end the program that is diagnosed.
            with contextlib.suppress(OSError):
                self._box.put(self.recorder.rank, text)
        return text

    def dump(self, reason: str, wait: float) -> Path:
        """Have every rank dump; return the folder."""
        self.write(reason)
        self._exchange.ask(reason, wait)
        return self._box.folder

    def close(self) -> None:
        """Switch everything off; a dump that is being written is waited for, and none follows."""
        self._stop.set()
        # A forked child has neither the threads nor whoever may hold the lock.
        if os.getpid() == self._process:
            self._thread.join()
            self._exchange.close()
            with self._writing:
                self._closed = True
        self._endings.remove()
        self._interception.remove()
        self.recorder.close(remove=True)

    def _rank(self) -> int:
        if dist.is_initialized():
            self.recorder.rank = dist.get_rank()
            self.recorder.world_size = dist.get_world_size()
        return self.recorder.rank

    def _watch(self) -> None:
        while not self._stop.wait(_TICK):
            if self._endings.terminated():
                self._endings.die()
                return
            if self._rank() >= 0:
                self._endings.watch_fatal(self._box.folder, self.recorder.rank)
            self._look()

    def _look(self) -> None:
        limit = time.monotonic_ns() - int(self._settings.timeout * 1e9)
        late = [e for e in self.recorder.sweep() if e.entered < limit and not e.reported]
        failed = self.recorder.failures()
        for entry in (*late, *failed):
            entry.reported = True
        if late:
            # The request goes out before this thread looks again; nobody waits for the answers.
            self.write(f"a call is not over after {self._settings.timeout:g} s")
            self._exchange.ask(f"timeout on rank {self.recorder.rank}")
        elif failed:
            self.write(f"a call failed: {failed[0].error[:200]}")
            self._exchange.ask(f"failure on rank {self.recorder.rank}")
        if self._box.requested():
            self.write("asked by a file")
            self._exchange.ask("asked by a file")

    def _finish(self, ending: Ending) -> None:
        self._ending = ending
        self._stop.set()
        reason = f"{ending.kind}: {ending.text[:200]}"
        text = self.write(reason)
        if ending.kind is EndingKind.EXCEPTION:
            self._exchange.ask(reason, self._settings.gather)
        self._exchange.leave(text, _LAST_WORDS)
        self.recorder.close(remove=True)


def enable(
    folder: str | Path | None = None,
    *,
    timeout: float = 60.0,
    capacity: int = 2048,
    gather: float = 5.0,
) -> None:
    """Switch the recorder on, best before the process group is made; nothing if it is on already.

    Args:
        folder: where dumps go, by default ``torchyard-flight`` in the working folder.
        timeout: seconds after which a call that is not over has every rank dump.
        capacity: how many calls are kept.
        gather: seconds to wait for the other ranks' dumps.

    FlightSettingError: a number is not positive, or this torch has no distributed package.
    """
    settings = Settings(
        Path("torchyard-flight") if folder is None else arguments.path("enable", "folder", folder),
        arguments.number("enable", "timeout", timeout),
        arguments.integer("enable", "capacity", capacity),
        arguments.number("enable", "gather", gather),
    )
    start(settings)


def start(settings: Settings) -> None:
    """Switch the recorder on."""
    global _session
    if not dist.is_available():
        raise FlightSettingError("the flight recorder: expected a torch with torch.distributed")
    if _session is None:
        _session = Session(settings)


def disable() -> None:
    """Switch the recorder off and forget what it holds; nothing if it is off."""
    global _session
    if _session is not None:
        _session.close()
        _session = None


def is_enabled() -> bool:
    """Whether the recorder is on."""
    return _session is not None


def dump(reason: str = "asked by the program", *, wait: float = 5.0) -> Path:
    """Have every rank write its dump; return the folder.

    Args:
        reason: goes into the dumps.
        wait: seconds to wait until the other ranks' dumps are here.

    FlightSettingError: the recorder is off.
    """
    arguments.text("dump", "reason", reason)
    wait = arguments.number("dump", "wait", wait, least=0, most=_LONGEST)
    if _session is None:
        raise FlightSettingError("dump: expected a recorder that is on; call enable() first")
    return _session.dump(reason, wait)
