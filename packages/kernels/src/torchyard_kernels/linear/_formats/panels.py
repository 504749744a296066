"""The format ``panels``: a weight's own numbers, in the order in which kernels read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import WeightSpec, panel_shape

__all__ = ["PANELS"]

# dtype -> how many consecutive numbers of a row are adjacent.
_PAIR: Final = {torch.float32: 1, torch.float16: 1, torch.bfloat16: 2}


class _Panels:
    names: Final = ("data",)

    def pack(
        self, weight: Tensor, options: Mapping[str, int]
    ) -> tuple[tuple[Tensor, ...], tuple[tuple[str, int], ...]]:
        if options:
            raise TypeError(f"PackedWeight: format 'panels' has no option {next(iter(options))!r}")
        if weight.dtype not in _PAIR:
            known = ", ".join(str(dtype) for dtype in _PAIR)
            raise TypeError(f"PackedWeight: weight: expected one of {known}, got {weight.dtype}")
        rows, columns = weight.shape
        panels, words, side, pair = panel_shape(rows, columns, _PAIR[weight.dtype])
        padded = torch.nn.functional.pad(
            weight, (0, words * pair - columns, 0, panels * side - rows)
        )
        data = padded.reshape(panels, side, words, pair).permute(0, 2, 1, 3).contiguous()
        return (data,), ()

    def unpack(self, spec: WeightSpec, tensors: tuple[Tensor, ...]) -> Tensor:
        (data,) = tensors
        panels, words, side, pair = data.shape
        whole = data.permute(0, 2, 1, 3).reshape(panels * side, words * pair)
        return whole[: spec.rows, : spec.columns].contiguous()

    def check(self, spec: WeightSpec, tensors: tuple[Tensor, ...]) -> None:
        (data,) = tensors
        dtype = getattr(torch, spec.dtype, None)
        if dtype not in _PAIR:
            raise ValueError(f"PackedWeight: spec: format 'panels' has no dtype {spec.dtype!r}")
        shape = panel_shape(spec.rows, spec.columns, _PAIR[dtype])
        if data.shape != shape or data.dtype != dtype:
            raise ValueError(
                f"PackedWeight: data: expected {list(shape)} of {dtype} for '{spec}', got "
                f"{list(data.shape)} of {data.dtype}"
            )


PANELS: Final = _Panels()
