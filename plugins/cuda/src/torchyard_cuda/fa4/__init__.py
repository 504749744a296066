"""FlashAttention-4: recorded programs as functions in CuTe DSL, and an adapter over a beta.

Importing this package imports neither flash_attn nor cutlass: nothing of them is imported before a
call is computed.
"""

from __future__ import annotations

__all__: list[str] = []
