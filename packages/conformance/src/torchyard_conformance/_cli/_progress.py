"""The progress of a run on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from torchyard_conformance._runs._events import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Watch:
    """Show a bar of the cases that ran."""

    def __init__(self) -> None:
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True, markup=False), transient=True)
            self._bar.add_task("collecting the laws", total=None)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Show a state."""
        if self._bar is None or not progress.begun:
            return
        law, case = progress.begun[-1]
        self._bar.update(
            self._bar.task_ids[0],
            description=f"{law} {case}",
            total=len(progress.collected),
            completed=len(progress.results),
        )
