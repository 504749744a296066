"""The protocol of a format of packed weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from torchyard_kernels.linear.contract import WeightSpec

__all__ = ["Format"]


class Format(Protocol):
    """A layout of weights, as tensors that a file can hold and every device can read."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, in the order of ``Packed.tensors``."""

    def pack(
        self, weight: Tensor, options: Mapping[str, int]
    ) -> tuple[tuple[Tensor, ...], tuple[tuple[str, int], ...]]:
        """Return a weight's tensors, contiguous, and the options of its spec.

        Args:
            weight: [N, K], floating point, any strides.
            options: the options that the caller gave.

        Raises:
            TypeError: the dtype, or an option's name, is not one of the format's.
            ValueError: an option's value does not fit.
        """

    def unpack(self, spec: WeightSpec, tensors: tuple[Tensor, ...]) -> Tensor:
        """Return the weight [N, K], contiguous, in the spec's dtype."""

    def check(self, spec: WeightSpec, tensors: tuple[Tensor, ...]) -> None:
        """Raise ValueError where shapes or dtypes of tensors do not match the spec."""
