"""Call sites: the user's frames on the way to a collective."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType, TracebackType
from typing import Final

import torch
from torch.distributed import distributed_c10d

from torchyard_collectives.flight._history import Frame
from torchyard_collectives.flight._record.branches import read_frame

__all__ = [
    "RawSite",
    "capture",
    "capture_traceback",
    "frames_of",
    "is_in_torch_distributed",
    "plain_frames",
    "stack_of",
]

RawSite = tuple[tuple[CodeType, int], ...]

_DEPTH: Final = 4
_FARTHEST: Final = 48
_C10D: Final = str(distributed_c10d.__file__)
_STANDARD: Final = os.path.dirname(os.__file__) + os.sep
_TORCH: Final = os.path.dirname(torch.__file__) + os.sep
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OURS: Final = _PACKAGE + os.sep

# Whether a code object is the user's; by identity, because hashing one reads all of it. The objects
# are kept, so that no other gets an identity that is in here.
_known: dict[int, tuple[CodeType, bool]] = {}


def capture(frame: FrameType | None) -> RawSite:
    """Return the user's innermost frames from a frame outwards, not yet looked up: about 1 us."""
    found = []
    steps = _FARTHEST
    while frame is not None and steps:
        code = frame.f_code
        known = _known.get(id(code))
        if known is None:
            known = _known[id(code)] = (code, _is_users(code.co_filename))
        if known[1]:
            found.append((code, frame.f_lasti))
            if len(found) == _DEPTH:
                break
        frame = frame.f_back
        steps -= 1
    return tuple(found)


def capture_traceback(trace: TracebackType | None) -> RawSite:
    """Return the user's innermost frames of an exception."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if _is_users(code.co_filename):
            found.append((code, trace.tb_lasti))
        trace = trace.tb_next
    return tuple(reversed(found[-_DEPTH:]))


def is_in_torch_distributed(frame: FrameType | None) -> bool:
    """Whether a thread is inside a function of torch.distributed."""
    while frame is not None:
        if frame.f_code.co_filename == _C10D:
            return True
        frame = frame.f_back
    return False


def plain_frames(site: RawSite) -> list[dict[str, object]]:
    """Return captured frames as JSON, without what only the source would tell."""
    return [
        {"file": code.co_filename, "line": _line(code, position), "function": code.co_qualname}
        for code, position in site
    ]


def frames_of(site: RawSite) -> tuple[Frame, ...]:
    """Look up files, lines and branches of captured frames."""
    return tuple(
        read_frame(code.co_filename, _line(code, position), code.co_qualname)
        for code, position in site
    )


def stack_of(thread: int | None) -> tuple[Frame, ...]:
    """Return what a thread is doing now, the user's frames, innermost first."""
    frame = sys._current_frames().get(thread or -1)
    return frames_of(capture(frame))


def _is_users(file: str) -> bool:
    if file.startswith((_TORCH, _OURS, "<frozen", "<eval_with_key>")):
        return False
    # torch wraps what it has deprecated in a function of this module.
    if file.endswith("typing_extensions.py"):
        return False
    return not file.startswith(_STANDARD) or "-packages" in file


def _line(code: CodeType, position: int) -> int:
    for start, end, line in code.co_lines():
        if start <= position < end and line is not None:
            return line
    return code.co_firstlineno
