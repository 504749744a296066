"""What a device plugin says of the device in hand."""

from __future__ import annotations

from dataclasses import dataclass


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
