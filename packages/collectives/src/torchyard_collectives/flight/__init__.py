"""A flight recorder for collectives: what every rank did, and what went wrong.

Names are loaded when they are first used, so that ``import torchyard_collectives`` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchyard_collectives.flight._analysis.findings import Finding, Kind, Outcome, Report
    from torchyard_collectives.flight._analysis.verdict import analyse
    from torchyard_collectives.flight._dump.read import read_dump, read_folder
    from torchyard_collectives.flight._errors import FlightDumpError, FlightSettingError
    from torchyard_collectives.flight._report.command import command
    from torchyard_collectives.flight._session import disable, dump, enable, is_enabled

_HOMES = {
    "Finding": "_analysis.findings",
    "FlightDumpError": "_errors",
    "FlightSettingError": "_errors",
    "Kind": "_analysis.findings",
    "Outcome": "_analysis.findings",
    "Report": "_analysis.findings",
    "analyse": "_analysis.verdict",
    "command": "_report.command",
    "disable": "_session",
    "dump": "_session",
    "enable": "_session",
    "is_enabled": "_session",
    "read_dump": "_dump.read",
    "read_folder": "_dump.read",
}

__all__ = [
    "Finding",
    "FlightDumpError",
    "FlightSettingError",
    "Kind",
    "Outcome",
    "Report",
    "analyse",
    "command",
    "disable",
    "dump",
    "enable",
    "is_enabled",
    "read_dump",
    "read_folder",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
