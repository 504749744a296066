"""Find the line of the user's code that caused a fault."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

import torch

_OURS: Final = str(Path(__file__).parents[1])
_TORCH: Final = str(Path(torch.__file__).parent)
# Files of ours that call the user's model: what is further out is not part of it.
_CALLERS: Final = frozenset(
    str(Path(__file__).parents[1] / name)
    for name in ("_audit/model.py", "_audit/program.py", "_audit/reference.py", "_capture/trace.py")
)
_STANDARD: Final = str(Path(traceback.__file__).parent)


def is_users(filename: str) -> bool:
    """Say whether a file is neither torch's nor ours nor Python's own."""
    if filename.startswith("<"):
        return False
    if filename.startswith((_OURS, _TORCH)):
        return False
    return not filename.startswith(_STANDARD) or "site-packages" in filename


def calling_line() -> str:
    """Return ``file:line`` of the model's innermost running frame; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name in _CALLERS and frame.f_code.co_name != "__torch_function__":
            break
        if is_users(name):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def raising_line(error: BaseException) -> str:
    """Return ``file:line`` of the user's innermost frame under an exception."""
    found = ""
    step: TracebackType | None = error.__traceback__
    while step is not None:
        name = step.tb_frame.f_code.co_filename
        if is_users(name) and step.tb_frame.f_code.co_name != "<module>":
            found = f"{name}:{step.tb_lineno}"
        step = step.tb_next
    return found
