"""The libraries' functions as they were read: what they take, and since which version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

__all__ = ["LIBRARIES", "Library"]


@dataclass(frozen=True, slots=True)
class Library:
    """A library's ``flash_attn_func``.

    Attributes:
        name: the implementation's, after the plugin's.
        module: that has the function.
        distribution: that brings the module.
        platform_name: of the library among a platform's.
        architectures: for which it has kernels.
        pairs: (head_dim, value_dim) that it takes besides equal ones.
        lse: the argument that asks for the log-sum-exp too.
        least: the oldest version whose function was read.
        install: the command that installs it.
        signatures: what was read, by versions: parameters with their defaults.
    """

    name: str
    module: str
    distribution: str
    platform_name: str
    architectures: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    lse: str
    least: tuple[int, ...]
    install: str
    signatures: Mapping[str, Sequence[str]]


def _read() -> Mapping[str, Mapping[str, Sequence[str]]]:
    text = files("torchyard_rocm.attention").joinpath("known.json").read_text(encoding="utf-8")
    return {name: found["signatures"] for name, found in json.loads(text).items()}


_SIGNATURES: Final = _read()
LIBRARIES: Final = (
    Library(
        name="aiter",
        module="aiter",
        distribution="amd-aiter",
        platform_name="aiter",
        architectures=("gfx942", "gfx950"),
        pairs=((192, 128),),
        lse="return_lse",
        least=(0, 1, 7),
        install="pip install amd-aiter, as its README says; the package aiter is another one",
        signatures=_SIGNATURES["aiter"],
    ),
    Library(
        name="flash",
        module="flash_attn",
        distribution="flash-attn",
        platform_name="flash-attn",
        architectures=("gfx90a", "gfx942", "gfx950"),
        pairs=(),
        lse="return_attn_probs",
        least=(2, 6),
        install="pip install --no-build-isolation flash-attn, beside a torch for ROCm",
        signatures=_SIGNATURES["flash"],
    ),
)
