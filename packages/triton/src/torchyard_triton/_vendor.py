"""What a plugin of accelerators says of its devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard import Accelerator

__all__ = ["Vendor"]


def _reported(accelerator: Accelerator) -> str:
    return accelerator.architecture


@dataclass(frozen=True, slots=True)
class Vendor:
    """A plugin that offers these kernels on its device.

    Attributes:
        name: the plugin's; its implementation of attention is ``<name>.triton``.
        device: torch device type.
        backend: Triton's, as of :class:`torchyard_triton.architectures.Architecture`: two vendors
            may have one device type.
        current: returns the architecture of the current device, when a kernel is first started.
            The only function here that may look at the machine.
        arch_of: returns an accelerator's architecture as ``torchyard_triton.architectures`` names
            it, from the platform's facts alone.
    """

    name: str
    device: str
    backend: str
    current: Callable[[], str]
    arch_of: Callable[[Accelerator], str] = _reported
