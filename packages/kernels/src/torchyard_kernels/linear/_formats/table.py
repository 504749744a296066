"""The formats of packed weights, by name."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from torchyard_kernels.linear._formats.format import Format
from torchyard_kernels.linear._formats.panels import PANELS
from torchyard_kernels.linear._formats.quantised import INT4, INT8
from torchyard_kernels.linear.contract import Packed

__all__ = ["FORMATS", "parse_format", "unpacked"]

FORMATS: Final[dict[str, Format]] = {
    "int4": INT4,
    "int8": INT8,
    "panels": PANELS,
}


def parse_format(name: object) -> Format:
    """Return the format of a name.

    Raises:
        ValueError: there is none; the message lists them.
    """
    found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(repr(known) for known in FORMATS)
        raise ValueError(f"PackedWeight: format: expected one of {known}, got {name!r}")
    return found


def unpacked(weight: Tensor | Packed) -> Tensor:
    """Return a plain weight as it is, a packed one unpacked."""
    if isinstance(weight, Packed):
        return parse_format(weight.spec.format).unpack(weight.spec, weight.tensors)
    return weight
