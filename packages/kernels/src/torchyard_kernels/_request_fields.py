"""Fields of requests, read from the text that ``torchyard explain`` is given."""

from __future__ import annotations

__all__ = ["parse_flag", "parse_sizes"]


def parse_flag(name: str, text: str) -> bool:
    """Return whether a text says yes.

    Args:
        name: the field, for the message.

    Raises:
        ValueError: it says neither yes nor no.
    """
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in values:
        raise ValueError(f"{name}: expected true or false, got {text!r}")
    return values[text.lower()]


def parse_sizes(name: str, text: str, count: int) -> list[int]:
    """Return the ``count`` sizes of a text such as ``1,2048,64``.

    Args:
        name: the field, for the message.

    Raises:
        ValueError: other than ``count`` whole numbers, or one below 0.
    """
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count or any(value < 0 for value in values):
        wanted = "a size" if count == 1 else f"{count} sizes with commas between"
        raise ValueError(f"{name}: expected {wanted}, got {text!r}")
    return values
