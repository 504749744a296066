"""What goes wrong before a kernel runs."""

from __future__ import annotations

__all__ = [
    "CompilationError",
    "CompilerMissingError",
    "DeviceMissingError",
    "UnsupportedSourceError",
]


class CompilerMissingError(RuntimeError):
    """No compiler that can build or check the kernels is on this machine."""


class DeviceMissingError(RuntimeError):
    """No device of OpenCL that can run the kernels is on this machine."""


class CompilationError(ValueError):
    """The compiler refuses the kernels; the message is the compiler's, by the source's lines."""


class UnsupportedSourceError(ValueError):
    """The source uses a part of Metal that is not supported here; the message names the line."""
