"""NVIDIA machines written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from torchyard import Platform, read_platform_file

__all__ = ["NVIDIA", "OTHERS", "machine"]

NVIDIA: Final = ("a100", "rtx4090", "h100", "h200", "b200", "gb300", "rtx5090")
OTHERS: Final = ("cpu-avx512", "mi300x", "m3", "arc-b580")


def machine(name: str = "h100", *, without: str = "", **changes: Any) -> Platform:
    """Return a described machine with some facts changed.

    Args:
        name: of a platform file.
        without: a library that it has not.
        changes: of its accelerator; a library's version by its name, dashes as underscores.
    """
    found = read_platform_file(name).platform
    libraries = {known: version for known, version in found.libraries if known != without}
    for known in ("cudnn", "triton", "flash_attn_4"):
        if known in changes:
            libraries[known.replace("_", "-")] = changes.pop(known)
    accelerators = tuple(replace(item, **changes) for item in found.accelerators)
    return replace(found, libraries=tuple(sorted(libraries.items())), accelerators=accelerators)
