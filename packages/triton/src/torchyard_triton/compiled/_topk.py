"""The launches of topk that are compiled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from torchyard_kernels.topk.contract import Order, TopKCall
from torchyard_triton._launch import Launch
from torchyard_triton.compiled._specimen import Specimen
from torchyard_triton.topk._selection import selection_of

__all__ = ["topk_specimens"]

_DTYPES = ("float32", "bfloat16", "int64", "uint8")


def topk_specimens(architecture: str) -> Iterator[Specimen]:
    """Yield the kernels of a selection, by dtype; of any architecture the same."""
    del architecture
    for name in _DTYPES:
        for kernel in ("topk_select", "topk_sort"):
            if kernel != "topk_sort" or name != "int64":
                yield Specimen(kernel, name, partial(_launch, name, kernel), matrix=False)


def _launch(name: str, kernel: str) -> Launch:
    x = torch.zeros((4, 4096), dtype=getattr(torch, name))
    call = TopKCall(x, 1024, True, Order.SORTED, torch.ones_like(x, dtype=torch.bool))
    launches = selection_of(call).launches
    return next(launch for launch in launches if launch.kernel.__name__ == kernel)
