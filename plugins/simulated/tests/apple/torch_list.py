"""What torch's own list of operators, which is in every wheel, says of Apple GPUs.

Not in the list: operators that torch takes from ``mps`` to the CPU by name, and those of which a
version of macOS has no kernel.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import torchgen

__all__ = ["absent", "present"]


def present() -> set[str]:
    """Return the operators of ATen that have a kernel for Apple GPUs, or are made of others."""
    kernels, delegates = _listed()
    own = {
        name
        for name, keys in kernels.items()
        if not keys or "MPS" in keys or any("Composite" in key for key in keys)
    }
    return own | {name for name, other in delegates.items() if other in own}


def absent() -> set[str]:
    """Return the operators of ATen that have a kernel for the CPU and none for Apple GPUs."""
    kernels, delegates = _listed()
    there = present()
    own = {name for name, keys in kernels.items() if "CPU" in keys and name not in there}
    return own | {name for name, other in delegates.items() if other in own}


@cache
def _listed() -> tuple[dict[str, set[str]], dict[str, str]]:
    """Return operator -> dispatch keys with a kernel, and operator -> the one that computes it."""
    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    kernels: dict[str, set[str]] = {}
    delegates: dict[str, str] = {}
    for block in path.read_text().split("\n- func: ")[1:]:
        name, dispatch = block.partition("(")[0], block.partition("\n  dispatch:\n")[2]
        delegate = re.search(r"\n  structured_delegate: (\S+)", block)
        if delegate is not None:
            delegates[name] = delegate[1]
            continue
        rows = re.match(r"(?: {4}.*\n?)*", dispatch)
        keys = re.findall(r"^    ([\w, ]+):", rows[0] if rows else "", re.MULTILINE)
        kernels[name] = {key.strip() for row in keys for key in row.split(",")}
    return kernels, delegates
