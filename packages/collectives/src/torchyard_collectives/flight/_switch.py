"""TORCHYARD_FLIGHT switches the recorder on when torchyard_collectives is imported."""

from __future__ import annotations

from torchyard import setting

__all__ = ["switch_on"]


def switch_on() -> None:
    """Do what TORCHYARD_FLIGHT says; nothing, and cheaply, where it says nothing."""
    text = setting("TORCHYARD_FLIGHT")
    if not text:
        return
    from torchyard_collectives.flight._session import start
    from torchyard_collectives.flight._settings import parse_settings

    settings = parse_settings(text)
    if settings is not None:
        start(settings)
