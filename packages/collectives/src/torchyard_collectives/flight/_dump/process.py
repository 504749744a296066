"""Whether a process of this host is running."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_alive"]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        # Ended in between, or a system without /proc.
        return not Path("/proc/self/stat").exists()
    return state not in "ZX"
