"""What a host shows of a device that torch does not find."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from torchyard import arguments
from torchyard._environ import child_environ

__all__ = ["host_problem"]


def host_problem(
    files: Sequence[str],
    settings: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return why torch may find no device, as far as the host shows it; empty where it shows none.

    Args:
        files: of the device's driver: Linux has one of them at least where the driver is loaded.
        settings: environment variables that hide devices.
        environ: of the process; None: this one's.
    """
    of = "host_problem"
    files = arguments.sequence(of, "files", files, arguments.text)
    settings = arguments.sequence(of, "settings", settings, arguments.text)
    found = child_environ({}) if environ is None else arguments.mapping(of, "environ", environ)
    for name in settings:
        if str(found.get(name, "unset")).strip() in ("", "-1"):
            return f"{name}={found[name]} hides every device; unset it"
    return _of_files(files) if sys.platform == "linux" else ""


def _of_files(files: Sequence[str]) -> str:
    """Return why none of a driver's files can be opened; empty where one can."""
    here = [file for file in files if os.path.exists(file)]
    if not here:
        return f"none of {', '.join(files)} exists: no driver is loaded, or no device is there"
    closed = [file for file in here if not os.access(file, os.R_OK | os.W_OK)]
    if len(closed) == len(here):
        return (
            f"this user may not open {', '.join(closed)}; `ls -l` names the group that may, and "
            f"`sudo usermod -aG GROUP $USER` adds the user to it"
        )
    return ""
