"""What ``torchyard doctor --measure`` compares: work that users do, and what a device can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchyard import arguments

__all__ = ["SpeedLimits", "Workload"]


@dataclass(frozen=True, slots=True)
class SpeedLimits:
    """What a device reaches when it does one thing only, measured now.

    Attributes:
        per_second: by name: ``read`` (bytes read from memory), ``update`` (bytes read and written
            in place), and operations on a dtype by the dtype's name, two for a multiply-add.
        tune: the command that searches faster settings; empty where there is none.
    """

    per_second: Mapping[str, float]
    tune: str = ""

    def __post_init__(self) -> None:
        of = "SpeedLimits"
        arguments.mapping(of, "per_second", self.per_second, "a mapping of names to numbers")
        for name, value in self.per_second.items():
            arguments.text(of, f"per_second[{name!r}] (the name)", name)
            arguments.number(of, f"per_second[{name!r}]", value, least=0)
        arguments.instance(of, "tune", self.tune, str, "a string")


@dataclass(frozen=True, slots=True)
class Workload:
    """Work of a component that a device's limit bounds.

    Attributes:
        name: what it is, in a few words, such as ``attention, decode, bfloat16``.
        limits: the names of the limits that may bound it, of which the first that the device has
            counts.
        amount: bytes or operations of one call, in the unit of that limit.
        prepare: makes the inputs and returns the call; whoever times it waits for the device.
    """

    name: str
    limits: tuple[str, ...]
    amount: float
    prepare: Callable[[], Callable[[], object]]

    def __post_init__(self) -> None:
        of = "Workload"
        arguments.text(of, "name", self.name)
        object.__setattr__(
            self, "limits", arguments.sequence(of, "limits", self.limits, arguments.text)
        )
        object.__setattr__(self, "amount", arguments.number(of, "amount", self.amount, least=0))
        arguments.function(of, "prepare", self.prepare)
