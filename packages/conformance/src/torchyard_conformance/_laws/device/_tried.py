"""Try a check in a fresh process, and let a law end as it ended."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torchyard_conformance import Subject, unverified, violated

_MODULE: Final = "torchyard_conformance._device._run"
# What it compiles may be compiled for the first time.
_SECONDS: Final = 600.0


def devices(subject: Subject) -> Mapping[str, str]:
    """Return the devices that the plugin brings to torch, on its PrivateUse1 slot."""
    return {
        device.name: device.name
        for device in subject.manifest.devices
        if device.name in subject.devices and device.slot
    }


def try_check(subject: Subject, check: str, device: str) -> None:
    """End a law as a check ended on a device.

    Args:
        subject: the plugin.
        check: its name in the table of checks.
        device: the device's type.
    """
    with tempfile.TemporaryDirectory(prefix="torchyard-device-") as folder:
        path = Path(folder, "outcome.json")
        code = f"from {_MODULE} import observe\nobserve({check!r}, {device!r}, {str(path)!r})\n"
        process = subject.fresh(code, timeout=_SECONDS)
        if not path.is_file():
            last = " ".join(process.stderr.split()[-40:])
            ended = "was still running" if process.returncode is None else "ended"
            violated(f"expected {check} to be tried, its process {ended}: {last}")
        outcome, text = json.loads(path.read_text(encoding="utf-8"))
    if outcome == "violated":
        violated(text)
    if outcome == "unverified":
        unverified(text)
