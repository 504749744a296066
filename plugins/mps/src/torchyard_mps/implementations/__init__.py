"""What this plugin computes of torchyard's contracts; nothing here imports torch before it must."""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Implementation, hookimpl
from torchyard_mps.implementations import _attention, _linear, _pointwise, _recurrent, _topk

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers for a contract.

    Without claims: what it computes is proved on a device. A list need not name it; where a user
    enlists it, it comes before what computes the contract on any device.
    """
    return [
        implementation
        for op in (_attention, _linear, _pointwise, _recurrent, _topk)
        for implementation in op.offered(contract)
    ]
