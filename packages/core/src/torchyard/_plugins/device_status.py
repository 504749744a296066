"""What a device plugin says of the device in hand."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard import arguments


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """Say whether a device can be used now.

    Attributes:
        device: the torch device type.
        available: whether tensors can be made on it in this process.
        text: for a person: the model and what it can do, or why it cannot be used.
        hint: what would make it available; empty where it is.
        count: how many of them there are.
    """

    device: str
    available: bool
    text: str
    hint: str = ""
    count: int = 1

    def __post_init__(self) -> None:
        of = "DeviceStatus"
        arguments.text(of, "device", self.device)
        object.__setattr__(self, "available", arguments.boolean(of, "available", self.available))
        for field in ("text", "hint"):
            arguments.instance(of, field, getattr(self, field), str, "a string")
        object.__setattr__(self, "count", arguments.integer(of, "count", self.count, least=0))
