"""``caller``: the user's line that called an operator."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import torch

__all__ = ["caller"]

# Code below which the line is not sought.
_OWN: Final = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent),
    contextlib.__file__,
)


def caller() -> tuple[str, int] | None:
    """Return file and line of the nearest caller that is neither torch's nor ours.

    None where there is none: in a gradient's computation, by a thread of autograd.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
