"""What goes wrong before a kernel runs."""

from __future__ import annotations

__all__ = ["CompilationError", "CompilerMissingError", "UnsupportedSourceError"]


class CompilerMissingError(RuntimeError):
    """No C++ compiler that can build the kernels is on this machine."""


class CompilationError(ValueError):
    """The compiler refuses the kernels; the message is the compiler's, by the source's lines."""


class UnsupportedSourceError(ValueError):
    """The source uses a part of Metal that the shim does not have; the message names the line."""
