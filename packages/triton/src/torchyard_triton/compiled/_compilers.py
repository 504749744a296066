"""What the installed Triton has compilers for."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Final

from torchyard_triton._interpreter import interprets

__all__ = ["missing_compiler"]

# Triton's names of what compiles for its backends.
_COMPILERS: Final = {"cuda": "nvidia", "hip": "amd", "xpu": "intel"}


@cache
def missing_compiler(backend: str) -> str:
    """Return why nothing here compiles for one of Triton's backends; empty where it does."""
    if find_spec("triton") is None:
        return "triton is not installed"
    import triton
    from triton.backends import backends

    if _COMPILERS.get(backend) not in backends:
        return f"triton {triton.__version__} has no compiler for {backend}"
    if interprets():
        return "TRITON_INTERPRET is set, so this process interprets kernels"
    return ""
