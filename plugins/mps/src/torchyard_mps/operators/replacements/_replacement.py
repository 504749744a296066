"""``Replacement``: kernels of ours for what torch's device may lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Replacement"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Kernels of ours for what torch's device may lack.

    Attributes:
        program: of the probe's table: what shows whether the device has it.
        kernels: operator of ATen with its overload -> what computes it by operations of the device.
            It is called below autograd, so that torch's formulas of derivatives hold.
        on_cpu: operators that the CPU computes instead, on copies.
    """

    program: str
    kernels: Mapping[str, Callable[..., Any]]
    on_cpu: tuple[str, ...] = ()

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of ATen, with their overloads."""
        return (*self.kernels, *self.on_cpu)
