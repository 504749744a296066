"""The file that holds what ``torchyard autotune`` measured: read at load, merged when written."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import platformdirs
from filelock import FileLock

from torchyard import plugin_setting
from torchyard_cpu._tunables import Tunables, checked

__all__ = ["machine", "path", "remember", "tuned"]

_SCHEMA: Final = 1
_OFF: Final = "off"
_CPUINFO: Final = Path("/proc/cpuinfo")
_L2: Final = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


def path() -> Path:
    """Return where the file lies: the user's cache folder."""
    return platformdirs.user_cache_path("torchyard") / "cpu-tunables.json"


def machine(features: frozenset[str]) -> str:
    """Return a digest of what decides which tunables are fastest.

    The processor's model, its features, its cores, its second-level cache, and this package's
    version: values measured elsewhere, or for other kernels, are not used.
    """
    from importlib.metadata import version

    known = [
        version("torchyard-cpu"),
        platform.machine(),
        _model(),
        *sorted(features),
        str(os.cpu_count()),
        _L2.read_text().strip() if _L2.exists() else "",
    ]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]


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
        entry = _read(file).get(machine(features), {}).get(kernel)
        return base if entry is None else base._replace(**checked(entry["tunables"], str(file)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(
            f"{file}: not used, the defaults are: {error}; delete it, or measure again with "
            f"`torchyard autotune`",
            stacklevel=2,
        )
        return base


def remember(found: Mapping[str, Mapping[str, Any]], features: frozenset[str]) -> Path:
    """Merge what was measured into the file, atomically, and return where it lies.

    Args:
        found: per kernel ``{"tunables": {name: value}, "gain": ..., "date": ...}``.
        features: the processor's.

    Entries of other machines, versions and kernels stay. Two processes may do this at once.
    """
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        known = _read(file) if file.exists() else {}
        known.setdefault(machine(features), {}).update(found)
        with tempfile.NamedTemporaryFile(
            "w", dir=file.parent, prefix=file.name, delete=False, encoding="utf-8"
        ) as new:
            json.dump({"schema": _SCHEMA, "machines": known}, new, indent=1, sort_keys=True)
        os.replace(new.name, file)
    return file


def _read(file: Path) -> dict[str, dict[str, Any]]:
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
        raise ValueError(f"expected schema {_SCHEMA}")
    machines = content["machines"]
    if not isinstance(machines, dict):
        raise TypeError("machines: expected a table")
    return machines


def _model() -> str:
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
