"""The formats ``int8`` and ``int4``: codes with a scale for each output or each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.linear._formats.rounding import Codes, dequantise, quantise
from torchyard_kernels.linear.contract import WeightSpec
from torchyard_kernels.linear.contract.quantised import (
    BITS,
    GROUPS,
    QUANTISED_COLUMNS,
    data_shape,
    groups_of,
    option,
)

__all__ = ["INT4", "INT8"]

_DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32)
# Rows that are rounded at once: limits the temporary copies in float32.
_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class _Quantised:
    name: str
    # Of `group`, where none is given.
    group: int

    @property
    def names(self) -> tuple[str, ...]:
        return "data", "scale", "zero"

    def pack(
        self, weight: Tensor, options: Mapping[str, int]
    ) -> tuple[tuple[Tensor, ...], tuple[tuple[str, int], ...]]:
        kept = self._options(options)
        if weight.dtype not in _DTYPES:
            known = ", ".join(str(dtype) for dtype in _DTYPES)
            raise TypeError(f"PackedWeight: weight: expected one of {known}, got {weight.dtype}")
        rows, columns = weight.shape
        if not columns:
            raise ValueError(
                f"PackedWeight: weight: expected at least one product, got shape {[rows, columns]}"
            )
        spec = WeightSpec(self.name, str(weight.dtype)[6:], rows, columns, kept)
        bits, group = BITS[self.name], option(spec, "group")
        asymmetric = option(spec, "asymmetric") == 1
        panels, words, side, lanes = data_shape(spec)
        device = weight.device
        data = torch.empty((panels, words, side, lanes), dtype=torch.uint8, device=device)
        dtype = torch.bfloat16 if group else torch.float32
        groups = groups_of(spec)
        scale = torch.zeros((panels, groups, side), dtype=dtype, device=device)
        zero = torch.zeros(
            (panels, groups if asymmetric else 0, side), dtype=torch.uint8, device=device
        )
        for first in range(0, rows, _ROWS):
            part = weight[first : first + _ROWS]
            if not part.isfinite().all():
                raise ValueError(
                    "PackedWeight: weight: expected finite numbers, got an infinity or a NaN"
                )
            found = quantise(part, bits, group, asymmetric=asymmetric)
            place = slice(first // side, -(-(first + len(part)) // side))
            data[place] = _panels(found.codes, bits)
            scale[place] = _columns(found.scale)
            if found.zero is not None:
                zero[place] = _columns(found.zero)
        return (data, scale, zero), kept

    def unpack(self, spec: WeightSpec, tensors: tuple[Tensor, ...]) -> Tensor:
        data, scale, zero = tensors
        bits, group = BITS[self.name], option(spec, "group")
        weight = torch.empty(
            (spec.rows, spec.columns), dtype=getattr(torch, spec.dtype), device=data.device
        )
        for first in range(0, spec.rows, _ROWS):
            last = min(first + _ROWS, spec.rows)
            place = slice(first // QUANTISED_COLUMNS, -(-last // QUANTISED_COLUMNS))
            found = Codes(
                _rows_of(data[place], bits)[: last - first, : spec.columns],
                _scales_of(scale[place])[: last - first],
                _scales_of(zero[place])[: last - first] if zero.shape[1] else None,
            )
            weight[first:last] = dequantise(found, bits, group, weight.dtype)
        return weight

    def check(self, spec: WeightSpec, tensors: tuple[Tensor, ...]) -> None:
        try:
            self._options(dict(spec.options))
        except TypeError as error:
            raise ValueError(str(error)) from None
        if getattr(torch, spec.dtype, None) not in _DTYPES:
            raise ValueError(
                f"PackedWeight: spec: format '{self.name}' has no dtype {spec.dtype!r}"
            )
        panels, *_ = shape = data_shape(spec)
        groups = groups_of(spec)
        zeros = groups if option(spec, "asymmetric") else 0
        expected = (
            (shape, torch.uint8),
            (
                (panels, groups, QUANTISED_COLUMNS),
                torch.bfloat16 if option(spec, "group") else torch.float32,
            ),
            ((panels, zeros, QUANTISED_COLUMNS), torch.uint8),
        )
        for name, tensor, (sizes, dtype) in zip(self.names, tensors, expected, strict=True):
            if tensor.shape != sizes or tensor.dtype != dtype:
                raise ValueError(
                    f"PackedWeight: {name}: expected {list(sizes)} of {dtype} for '{spec}', got "
                    f"{list(tensor.shape)} of {tensor.dtype}"
                )

    def _options(self, given: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """Return all options of a spec.

        Raises:
            TypeError: one has a name that the format does not know.
            ValueError: one has a value that the format does not have.
        """
        allowed: dict[str, tuple[int, ...]] = {
            "activation": (0, 8),
            "asymmetric": (0, 1) if self.name == "int4" else (0,),
            "group": GROUPS,
        }
        for name, value in given.items():
            if name not in allowed:
                raise TypeError(
                    f"PackedWeight: format '{self.name}' has no option {name!r}; it has "
                    f"{', '.join(allowed)}"
                )
            if value not in allowed[name]:
                known = " or ".join(str(known) for known in allowed[name])
                raise ValueError(
                    f"PackedWeight: format '{self.name}': {name}: expected {known}, got {value!r}"
                )
        defaults = {"activation": 0, "asymmetric": 0, "group": self.group}
        return tuple((name, int(given.get(name, default))) for name, default in defaults.items())


def _panels(codes: Tensor, bits: int) -> Tensor:
    """Return codes [n, K] as panels, n rounded up."""
    rows, columns = codes.shape
    side = QUANTISED_COLUMNS
    padded = torch.nn.functional.pad(
        codes, (0, -columns % 8, 0, -rows % side), value=1 << (bits - 1)
    )
    if bits == 8:
        return padded.reshape(-1, side, padded.shape[1] // 4, 4).permute(0, 2, 1, 3)
    halves = padded.reshape(-1, side, padded.shape[1] // 8, 2, 4)
    return (halves[..., 0, :] | halves[..., 1, :] << 4).permute(0, 2, 1, 3)


def _rows_of(data: Tensor, bits: int) -> Tensor:
    """Return the argument of `_panels`, padding included."""
    panels, words, side, lanes = data.shape
    by_row = data.permute(0, 2, 1, 3)
    if bits == 4:
        by_row = torch.stack((by_row & 15, by_row >> 4), 3)
    return by_row.reshape(panels * side, words * lanes * (8 // bits))


def _columns(scale: Tensor) -> Tensor:
    """Return [n, G] as [panels, G, 64], n rounded up."""
    padded = torch.nn.functional.pad(scale, (0, 0, 0, -len(scale) % QUANTISED_COLUMNS))
    return padded.reshape(-1, QUANTISED_COLUMNS, scale.shape[1]).transpose(1, 2)


def _scales_of(columns: Tensor) -> Tensor:
    """Return the argument of `_columns`, padding included."""
    return columns.transpose(1, 2).reshape(-1, columns.shape[1])


INT8: Final = _Quantised("int8", 0)
INT4: Final = _Quantised("int4", 64)
