"""The errors of the flight recorder."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["FlightDumpError", "FlightSettingError"]


class FlightDumpError(TorchyardError, ValueError):
    """A dump is missing, damaged, too large, or says something that no recorder would write."""


class FlightSettingError(TorchyardError, ValueError):
    """A setting of the recorder cannot be understood, or does not fit this process."""
