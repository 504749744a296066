"""Run a program under the recorder: ``python -m torchyard_collectives.flight train.py ...``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from torchyard_collectives.flight._session import enable

__all__ = ["main"]


def main() -> None:
    """Switch the recorder on, unless TORCHYARD_FLIGHT has, and become the program."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m torchyard_collectives.flight PROGRAM [ARGUMENT]...")
    enable()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).absolute().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
