"""Attention on AMD GPUs: our kernels in Triton, and the libraries aiter and flash-attn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from torchyard import Implementation, hookimpl
from torchyard_attention.contract import FORWARD, Forward
from torchyard_rocm._vendor import VENDOR
from torchyard_rocm.attention._libraries import LIBRARIES, Library
from torchyard_rocm.attention._verdict import supports
from torchyard_triton import implementations

__all__ = ["torchyard_implementations"]

# What they come before where a user enlists them: aiter has kernels of its own besides those of
# composable kernel, which flash-attn has too.
_BEFORE: Final = {
    "aiter": ("rocm.flash", "rocm.triton", "attention.sdpa"),
    "flash": ("rocm.triton", "attention.sdpa"),
}


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers for a contract; imports neither torch nor a library."""
    offered = implementations(contract, VENDOR)
    if contract != FORWARD:
        return offered
    libraries = [
        Implementation(
            contract,
            f"rocm.{library.name}",
            partial(supports, library=library),
            partial(_load, library),
            before=_BEFORE[library.name],
        )
        for library in LIBRARIES
    ]
    return [*libraries, *offered]


def _load(library: Library) -> Forward:
    from torchyard_rocm.attention._adapter import LibraryForward, function_of

    return LibraryForward(library, function_of(library))
