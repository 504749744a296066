"""The file that holds what ``torchyard autotune`` measured: read at load, merged when written."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import platformdirs

from torchyard import MeasuredFile, digest_of, plugin_setting
from torchyard_cpu._tuning.tunables import Tunables, checked

__all__ = ["machine", "path", "store", "tuned"]

_OFF: Final = "off"
_CPUINFO: Final = Path("/proc/cpuinfo")
_L2: Final = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


def path() -> Path:
    """Return the file's path, in the user's cache folder."""
    return platformdirs.user_cache_path("torchyard") / "cpu-tunables.json"


def machine(features: frozenset[str]) -> str:
    """Return a digest of what decides which tunables are fastest.

    The processor's model, its features, its cores, its second-level cache, and this package's
    version: values measured elsewhere, or for other kernels, are not used.
    """
    from importlib.metadata import version

    return digest_of(
        (
            version("torchyard-cpu"),
            platform.machine(),
            _model(),
            *sorted(features),
            str(os.cpu_count()),
            _L2.read_text().strip() if _L2.exists() else "",
        )
    )


def tuned(kernel: str, base: Tunables, features: frozenset[str]) -> Tunables:
    """Return what was measured for a kernel on this machine; ``base`` where nothing was.

    ``TORCHYARD_CPU_TUNED=off`` returns ``base``. A file that cannot be read is left alone, with a
    warning that names it.
    """
    if plugin_setting("cpu", "tuned") == _OFF:
        return base
    file = path()
    if not file.exists():
        return base
    try:
        entry = MeasuredFile(file).read(machine(features)).get(kernel)
        return base if entry is None else base._replace(**checked(entry["tunables"], str(file)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(
            f"{file}: not used, the defaults are: {error}; delete it, or measure again with "
            f"`torchyard autotune`",
            stacklevel=2,
        )
        return base


def store(found: Mapping[str, Mapping[str, Any]], features: frozenset[str]) -> Path:
    """Merge what was measured into the file, atomically, and return its path.

    Args:
        found: per kernel ``{"tunables": {name: value}, "gain": ..., "date": ...}``.
        features: the processor's.

    Entries of other machines, versions and kernels stay. Two processes may do this at once.
    """
    file = path()
    MeasuredFile(file).merge(machine(features), found)
    return file


def _model() -> str:
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
