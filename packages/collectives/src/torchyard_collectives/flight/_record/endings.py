"""Hooks that run when this process ends, whatever ends it."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path
from types import TracebackType
from typing import Any

from torchyard_collectives.flight._dump.read import FATAL
from torchyard_collectives.flight._history import Ending, EndingKind
from torchyard_collectives.flight._record.sites import capture_traceback, frames_of

__all__ = ["Endings"]


class Endings:
    """Hooks on exceptions, exit, SIGTERM and fatal signals; :meth:`remove` takes them off.

    Args:
        finish: called once, with how the process ends.
    """

    def __init__(self, finish: Callable[[Ending], None]) -> None:
        self._finish = finish
        self._process = os.getpid()
        self._over = threading.Lock()
        self._excepthook = sys.excepthook
        sys.excepthook = self._excepted
        atexit.register(self._exited)
        # multiprocessing's children run these instead of atexit's.
        self._finalizer = util.Finalize(None, self._exited, exitpriority=100)
        self._fatal: Any = None
        self._pipe: tuple[int, int] | None = None
        self._catch_term()

    def remove(self) -> None:
        """Take the hooks off; the process ends as if they had never been there."""
        self._over.acquire(blocking=False)
        if sys.excepthook == self._excepted:
            sys.excepthook = self._excepthook
        atexit.unregister(self._exited)
        self._finalizer.cancel()
        if self._pipe is not None and threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None
        self._close_fatal()

    def watch_fatal(self, folder: Path, rank: int) -> None:
        """Have C write the stacks into the folder when a fatal signal ends the process."""
        if faulthandler.is_enabled() or self._fatal is not None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._fatal = (folder / FATAL.format(rank=rank)).open("w")
        faulthandler.enable(self._fatal)

    def terminated(self) -> bool:
        """Whether SIGTERM has come; asked by a thread, as the main one may be blocked in C."""
        if self._pipe is None:
            return False
        try:
            return bytes([signal.SIGTERM]) in os.read(self._pipe[0], 64)
        except BlockingIOError:
            return False

    def die(self) -> None:
        """Finish for SIGTERM, and let it end the process as it would have done."""
        if not self._end(Ending(EndingKind.SIGNAL, "SIGTERM")):
            return
        # Python sets handlers from the main thread only, which may never run again.
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
        os.kill(os.getpid(), signal.SIGTERM)

    def _catch_term(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if sys.platform == "win32":
            return
        # Who handles the signal already is left alone.
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if previous != -1:
            signal.set_wakeup_fd(previous)
            os.close(reading)
            os.close(writing)
            return
        self._pipe = (reading, writing)
        signal.signal(signal.SIGTERM, lambda number, frame: self.die())

    def _excepted(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._excepthook(kind, error, trace)
        self._end(_of_exception(error))

    def _exited(self) -> None:
        error = sys.exception()
        # torch.multiprocessing's children turn an exception into an exit.
        if isinstance(error, SystemExit) and error.code and error.__context__ is not None:
            error = error.__context__
        if error is None or isinstance(error, SystemExit):
            self._end(Ending(EndingKind.EXIT, "the end of its program"))
        else:
            self._end(_of_exception(error))

    def _end(self, ending: Ending) -> bool:
        # A forked child has the hooks and is not the process that they are for.
        if os.getpid() != self._process or not self._over.acquire(blocking=False):
            return False
        self._finish(ending)
        self._close_fatal()
        return True

    def _close_fatal(self) -> None:
        if self._fatal is None:
            return
        faulthandler.disable()
        self._fatal.close()
        path = Path(self._fatal.name)
        if path.exists() and not path.stat().st_size:
            path.unlink()
        self._fatal = None


def _of_exception(error: BaseException) -> Ending:
    text = "".join(traceback.format_exception_only(error)).strip()[:1000]
    site = frames_of(capture_traceback(error.__traceback__))
    return Ending(EndingKind.EXCEPTION, text, site)
