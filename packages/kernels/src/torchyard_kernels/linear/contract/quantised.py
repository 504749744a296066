"""The formats ``int8`` and ``int4`` of packed weights: what their tensors and options mean.

A weight is ``scale * (code - zero)``; codes are unsigned, of 8 or 4 bits. N outputs of K products
lie in panels of 64 outputs; K' is K rounded up to 8. Tensors, in this order:

- ``data``, uint8: ``[panels, K' / 4, 64, 4]`` of codes with 8 bits: element [p, w, c, j] is the
  code of output 64 p + c, product 4 w + j. ``[panels, K' / 8, 64, 4]`` with 4 bits: the lower half
  of a byte is product 8 w + j, the upper half 8 w + 4 + j. Beyond N and K lie middle codes;
- ``scale``, ``[panels, groups, 64]``: float32 where an output has one scale, else bfloat16;
- ``zero``, uint8 ``[panels, groups, 64]``, or ``[panels, 0, 64]`` where it is the middle code, 128
  or 8.

Options: ``group``, how many consecutive products have a common scale, 0: all of an output;
``asymmetric``, 1 where there are zeros; ``activation``, 8 where rows of x are rounded to 8 bits
before they are multiplied, else 0. A row is rounded to the multiples of its largest magnitude
over 127, halves to even; with an infinity or a NaN in it, its outputs are NaN.
"""

from __future__ import annotations

from typing import Final

from torchyard_kernels.linear.contract import WeightSpec

__all__ = ["BITS", "GROUPS", "QUANTISED_COLUMNS", "data_shape", "groups_of", "option"]

# Format -> bits of a code.
BITS: Final = {"int8": 8, "int4": 4}
# Sizes of a group; 0: all products of an output.
GROUPS: Final = (0, 32, 64, 128)
# Outputs of a panel.
QUANTISED_COLUMNS: Final = 64


def option(spec: WeightSpec, name: str) -> int:
    """Return an option of a spec; 0 where it is not there."""
    return dict(spec.options).get(name, 0)


def groups_of(spec: WeightSpec) -> int:
    """Return how many scales an output has."""
    group = option(spec, "group")
    return -(-spec.columns // group) if group else 1


def data_shape(spec: WeightSpec) -> tuple[int, int, int, int]:
    """Return the shape of ``data``."""
    words = -(-spec.columns // 8) * (BITS[spec.format] // 4)
    return -(-spec.rows // QUANTISED_COLUMNS), words, QUANTISED_COLUMNS, 4
