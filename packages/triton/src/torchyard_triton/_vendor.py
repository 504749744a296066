"""What a plugin of accelerators says of its devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard import Accelerator
from torchyard_triton.architectures import ARCHITECTURES, Architecture

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
        others: architectures that the table here does not have; they come from the plugin.
    """

    name: str
    device: str
    backend: str
    current: Callable[[], str]
    arch_of: Callable[[Accelerator], str] = _reported
    others: tuple[Architecture, ...] = ()

    def architectures(self) -> dict[str, Architecture]:
        """Return the architectures of the vendor's backend, by name."""
        own = {name: item for name, item in ARCHITECTURES.items() if item.backend == self.backend}
        return own | {item.name: item for item in self.others}
