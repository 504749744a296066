"""Whether Triton interprets kernels in this process."""

from __future__ import annotations

from functools import cache

__all__ = ["interprets"]


@cache
def interprets() -> bool:
    """Return whether TRITON_INTERPRET was set; Triton asks once, where a kernel is defined."""
    import triton

    # Triton before 3.4, which is for Intel alone here, interprets nothing here.
    return hasattr(triton, "knobs") and bool(triton.knobs.runtime.interpret)
