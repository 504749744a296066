"""Attention on NVIDIA GPUs: torch's fused kernels, FlashAttention-4, and ours in Triton."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from torchyard import Implementation, Platform, Verdict, hookimpl
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionRequest
from torchyard_cuda._vendor import VENDOR
from torchyard_cuda.attention import _gates
from torchyard_cuda.fa4._verdict import supports_block_mask, supports_without_blocks
from torchyard_triton import implementations

__all__ = ["FA4", "FUSED", "torchyard_implementations"]

_Supports = Callable[[AttentionRequest, Platform], Verdict]

# Name after the plugin's -> its verdict, of the forward and of the backward.
FUSED: Final[dict[str, _Supports]] = {
    "cudnn": _gates.supports_cudnn,
    "flash": _gates.supports_flash,
    "efficient": _gates.supports_efficient,
}
# FlashAttention-4 by two names, of which lists have the one whose calls ran on a GPU.
FA4: Final[dict[str, Callable[..., Verdict]]] = {
    "fa4": supports_without_blocks,
    "fa4_blocks": supports_block_mask,
}
# What computes a mask or a score_mod on any device.
_PORTABLE: Final = ("attention.flex", "attention.tiled")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers for a contract of attention; imports no torch."""
    if contract not in (FORWARD, BACKWARD):
        return []
    load = _load_forward if contract == FORWARD else _load_backward
    fused = [
        Implementation(contract, f"cuda.{name}", supports, partial(load, name))
        for name, supports in FUSED.items()
    ]
    fa4 = [
        Implementation(
            contract,
            f"cuda.{name}",
            partial(supports, backward=contract == BACKWARD),
            partial(_load_fa4, contract == FORWARD),
            before=(*(f"cuda.{name}" for name in FUSED), "cuda.triton", *_PORTABLE),
        )
        for name, supports in FA4.items()
    ]
    return [*fused, *fa4, *implementations(contract, VENDOR)]


def _load_forward(name: str) -> Callable[..., Any]:
    from torchyard_cuda.attention._fused import FusedForward, kernel_of

    return FusedForward(kernel_of(name))


def _load_backward(name: str) -> Callable[..., Any]:
    from torchyard_cuda.attention._fused import FusedBackward, kernel_of

    return FusedBackward(kernel_of(name))


def _load_fa4(is_forward: bool) -> Callable[..., Any]:
    from torchyard_cuda.fa4._adapter import Fa4Backward, Fa4Forward, functions

    return Fa4Forward(functions()) if is_forward else Fa4Backward(functions())
