"""Python examples, each in a process of its own, forked from one that has imported torch."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from pathlib import Path
from typing import Final

__all__ = ["run_python"]

# A fork starts a second and a half sooner than a process that imports torch.
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["torch"])


def run_python(text: str, folder: Path) -> tuple[int | None, str]:
    """Run a block as a program whose working directory is ``folder``.

    Returns:
        The exit status, and all that it printed.
    """
    printed = folder / "printed.txt"
    process = _PROCESSES.Process(target=_run, args=(text, str(folder), str(printed)))
    process.start()
    process.join()
    status = process.exitcode
    return status, printed.read_text(encoding="utf-8", errors="replace")


def _run(text: str, folder: str, printed: str) -> None:
    with open(printed, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    sys.argv = ["-c"]
    module = sys.modules["__main__"]
    module.__dict__.update(__name__="__main__", __file__=None)
    try:
        exec(compile(text, "<string>", "exec"), module.__dict__)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
