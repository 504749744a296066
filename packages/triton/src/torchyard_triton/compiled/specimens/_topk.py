"""The launches of topk that are compiled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from torchyard_kernels.topk.contract import TOPK, Order, TopKCall
from torchyard_triton._launch import Launch
from torchyard_triton.compiled.specimens._specimen import Specimen
from torchyard_triton.topk._selection import selection_of
from torchyard_triton.topk._ways import Ways, ways_of

__all__ = ["topk_specimens"]

_DTYPES = ("float32", "bfloat16", "int64", "uint8")


def topk_specimens(architecture: str) -> Iterator[Specimen]:
    """Yield the kernels of a selection, by dtype; of the architecture's ways the largest tiles."""
    ways = ways_of(architecture)
    for name in _DTYPES:
        yield _specimen("topk_select", name, 4096, 1024, Ways())
        if name != "int64":
            yield _specimen("topk_sort", name, 4096, 1024, Ways())
        if ways.counted:
            length = ways.counted // 2 if name == "int64" else ways.counted
            yield _specimen("topk_count", name, length, length // 4, ways)
        if ways.network_few and name != "int64":
            yield _specimen("topk_bitonic", name, ways.network_few, ways.network_k, ways)


def _specimen(kernel: str, name: str, length: int, k: int, ways: Ways) -> Specimen:
    build = partial(_launch, kernel, name, length, k, ways)
    return Specimen(TOPK, kernel, name, build, matrix=False)


def _launch(kernel: str, name: str, length: int, k: int, ways: Ways) -> Launch:
    # So many rows that none is cut into parts.
    x = torch.zeros((1, length), dtype=getattr(torch, name)).expand(256, length)
    call = TopKCall(x, k, True, Order.SORTED, torch.ones_like(x, dtype=torch.bool))
    launches = selection_of(call, ways=ways).launches
    return next(launch for launch in launches if launch.kernel.__name__ == kernel)
