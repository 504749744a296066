"""The recorder's settings, as a call or TORCHYARD_FLIGHT gives them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from torchyard_collectives.flight._errors import FlightSettingError

__all__ = ["Settings", "parse_settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How the recorder works.

    Attributes:
        folder: where dumps go; made if it is not there.
        timeout: seconds after which a call that is not over has every rank dump.
        capacity: how many calls are kept.
        gather: seconds to wait for the other ranks' dumps.
    """

    folder: Path = Path("torchyard-flight")
    timeout: float = 60.0
    capacity: int = 2048
    gather: float = 5.0

    def __post_init__(self) -> None:
        for name in ("timeout", "capacity", "gather"):
            value = getattr(self, name)
            if not 0 < value < 1e9:
                raise FlightSettingError(f"{name}: expected more than 0, got {value!r}")


_TYPES: Final[dict[str, Any]] = {
    "folder": Path,
    "timeout": float,
    "capacity": int,
    "gather": float,
}


def parse_settings(text: str) -> Settings | None:
    """Return the settings that TORCHYARD_FLIGHT's value means; None for ``off`` and nothing."""
    words = text.strip()
    if words.lower() in ("", "off", "0"):
        return None
    if words.lower() in ("on", "1"):
        return Settings()
    given: dict[str, Any] = {}
    for word in words.split(","):
        name, separator, value = (part.strip() for part in word.partition("="))
        if not separator or name not in _TYPES or not value:
            known = ", ".join(f"{field.name}=..." for field in fields(Settings))
            raise FlightSettingError(
                f"TORCHYARD_FLIGHT: expected on, off, or some of {known} with commas between, got "
                f"{word!r}"
            )
        try:
            given[name] = _TYPES[name](value)
        except ValueError as error:
            raise FlightSettingError(
                f"TORCHYARD_FLIGHT: {name}: expected a number, got {value!r}"
            ) from error
    return Settings(**given)
