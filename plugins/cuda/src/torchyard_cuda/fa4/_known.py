"""The versions of flash-attn-4 whose private functions were read, with the arguments in use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Signatures", "install_command", "known"]


@dataclass(frozen=True, slots=True)
class Signatures:
    """Arguments that a version must have, by function.

    Attributes:
        forward, backward: names of arguments of the private forward and backward.
        lists: names of what holds a mask's lists of blocks.
    """

    forward: tuple[str, ...]
    backward: tuple[str, ...]
    lists: tuple[str, ...]


@cache
def known() -> Mapping[str, Signatures]:
    """Return what was read, by version."""
    text = files("torchyard_cuda.fa4").joinpath("known.json").read_text(encoding="utf-8")
    return {
        version: Signatures(*(tuple(found[name]) for name in ("forward", "backward", "lists")))
        for version, found in json.loads(text).items()
    }


def install_command() -> str:
    """Return the command that installs the newest version that was read.

    No extra of this package has it: it is a beta, and a release requires no prerelease.
    quack-kernels, which it brings, imports triton without declaring it.
    """
    *_, newest = known()
    return f"pip install flash-attn-4=={newest} triton"
