"""``source_of``: kernels of recurrent layers as Metal source."""

from __future__ import annotations

from functools import lru_cache

import torch

from torchyard_kernels.recurrent.contract import RecurrentKind
from torchyard_mps._launch import PREAMBLE, metal_text
from torchyard_mps.lowering import type_of_dtype

__all__ = ["source_of"]


@lru_cache(maxsize=256)
def source_of(
    file: str, kind: RecurrentKind, dtype: torch.dtype, flags: tuple[tuple[str, bool], ...]
) -> str:
    """Return the source of a file in ``metal/recurrent``.

    Args:
        file: its name without ``.metal``.
        kind: the equations.
        dtype: of weights and states, ``T``.
        flags: what else the file wants defined.
    """
    lines = [f"typedef {type_of_dtype(dtype)} T;"]
    lines += [f"#define {one.name} {number}" for number, one in enumerate(RecurrentKind)]
    lines += [f"#define KIND {kind.name}"]
    lines += [f"#define {name} {str(flag).lower()}" for name, flag in flags]
    texts = metal_text("rounding", "elementary"), *lines, metal_text(f"recurrent/{file}")
    return "\n".join([PREAMBLE, *texts])
