"""Packed weights as ``linear/1`` has them: what their tensors mean, and the format ``panels``.

This module imports torch only for type checkers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PANEL_COLUMNS", "Packed", "WeightSpec", "panel_shape"]

# Outputs whose weights are adjacent in the format ``panels``.
PANEL_COLUMNS: Final = 32

_SPEC: Final = re.compile(
    r"([a-z][a-z0-9_]*) ([a-z]+[0-9]+) ([0-9]+)x([0-9]+)((?: [a-z_]+=[0-9]+)*)"
)


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """What the tensors of a packed weight mean.

    Attributes:
        format: the layout, such as ``panels``.
        dtype: the name of the weight's dtype before it was packed, which x must have too.
        rows: N, outputs.
        columns: K, products per output.
        options: of the format, by name, such as ``("group", 128)``.
        text: the spec as one line, such as ``panels float16 4096x4096``.
    """

    format: str
    dtype: str
    rows: int
    columns: int
    options: tuple[tuple[str, int], ...] = ()
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        options = "".join(f" {name}={value}" for name, value in self.options)
        text = f"{self.format} {self.dtype} {self.rows}x{self.columns}{options}"
        object.__setattr__(self, "text", text)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str) -> WeightSpec:
        """Return the spec of a text.

        Raises:
            ValueError: shows the expected form.
        """
        return _parsed(text)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> WeightSpec:
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ValueError(
            f"spec: expected 'format dtype NxK option=value ...' such as "
            f"'panels float16 4096x4096', got {text!r}"
        )
    options = (option.split("=") for option in match[5].split())
    return WeightSpec(
        match[1],
        match[2],
        int(match[3]),
        int(match[4]),
        tuple((name, int(value)) for name, value in options),
    )


def panel_shape(rows: int, columns: int, pair: int) -> tuple[int, int, int, int]:
    """Return the shape of ``panels``: [ceil(N / 32), ceil(K / P), 32, P].

    Element [p, w, c, e] is W[32 p + c, P w + e], or 0 beyond W. P, here ``pair``, is 2 for bfloat16
    and 1 for any other dtype, so that a word of 32 bits holds what one instruction multiplies.
    """
    return -(-rows // PANEL_COLUMNS), -(-columns // pair), PANEL_COLUMNS, pair


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A packed weight's tensors.

    Attributes:
        spec: what they mean.
        tensors: contiguous, in the order that the format states.
    """

    spec: WeightSpec
    tensors: tuple[Tensor, ...]
