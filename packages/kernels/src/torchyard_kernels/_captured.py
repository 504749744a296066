"""What functions capture, as kernels read it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["stored"]


def stored(captured: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """Return tensors whose memory holds their values; None is none.

    The dispatcher sees to that for what it is given, but not for lists that an op may lack.
    """
    return tuple(
        [
            tensor.clone() if tensor._is_zerotensor() else tensor.resolve_neg()
            for tensor in captured or ()
        ]
    )
