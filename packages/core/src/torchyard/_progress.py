"""A progress bar on stderr, for whoever waits longer than a second."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE_SECONDS: Final = 1.0


class Steps:
    """Count steps; show a bar once they have taken a second. Only where stderr is a terminal.

    Args:
        total: how many steps there will be.
        shown: whether a bar may be shown at all.
    """

    def __init__(self, total: int, *, shown: bool = True) -> None:
        self._total = total
        self._shown = shown
        self._done = 0
        self._doing = ""
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._shown and sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._total = 0
            if self._bar is not None:
                self._bar.stop()

    def step(self, doing: str) -> None:
        """Say what begins now."""
        with self._lock:
            self._doing = doing
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], description=doing, completed=self._done)
            self._done += 1

    def expect(self, more: int) -> None:
        """Say that there will be more steps."""
        with self._lock:
            self._total += more
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], total=self._total)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        with self._lock:
            # The last step may have ended while rich was imported.
            if not self._total:
                return
            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.add_task(self._doing, total=self._total, completed=max(self._done - 1, 0))
            self._bar.start()
