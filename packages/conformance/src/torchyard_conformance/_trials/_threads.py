"""Sets torch's number of threads for a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["threads"]


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Give torch a number of threads; 0 leaves it. What is changed meanwhile stays changed."""
    before = torch.get_num_threads()
    given = count or before
    torch.set_num_threads(given)
    try:
        yield
    finally:
        if torch.get_num_threads() == given:
            torch.set_num_threads(before)
