"""The file that holds what was measured: in the user's cache folder, by architecture."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import platformdirs

from torchyard import MeasuredFile, digest_of, plugin_setting

if TYPE_CHECKING:
    from torchyard_triton.autotune._search import Finding

__all__ = ["measured_path", "measured_tiles", "store"]

_OFF: Final = "off"
_SIZES: Final = {"rows": 16, "keys": 16, "warps": 1, "stages": 1}


def measured_path() -> Path:
    """Return the file's path."""
    return platformdirs.user_cache_path("torchyard") / "triton-tiles.json"


def _machine(architecture: str) -> str:
    """Return a digest of what decides which tiles are fastest: values of others are not used."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        compiler = version("triton")
    except PackageNotFoundError:
        compiler = ""
    return digest_of((version("torchyard-triton"), compiler, architecture))


def measured_tiles(architecture: str, kernel: str, head_dim: int) -> Mapping[str, Any]:
    """Return the sizes that were measured here; none where none were, or they are switched off.

    ``TORCHYARD_TRITON_TUNED=off`` switches them off. A file that cannot be read is left alone, with
    a warning that names it.
    """
    if plugin_setting("triton", "tuned") == _OFF:
        return {}
    return _read(measured_path(), architecture).get(f"{kernel}/{head_dim}", {})


@cache
def _read(file: Path, architecture: str) -> dict[str, Mapping[str, Any]]:
    if not file.exists():
        return {}
    try:
        entries = MeasuredFile(file).read(_machine(architecture))
        return {name: _sizes(entry["tiles"]) for name, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(
            f"{file}: not used, the table's tiles are: {error}; delete it, or measure again with "
            f"`python -m torchyard_triton.autotune`",
            stacklevel=3,
        )
        return {}


def _sizes(found: dict[str, Any]) -> Mapping[str, Any]:
    if found.keys() != _SIZES.keys():
        raise ValueError(f"tiles: expected {', '.join(_SIZES)}, got {', '.join(found) or 'none'}")
    for name, least in _SIZES.items():
        value = found[name]
        power = name == "stages" or (type(value) is int and value & (value - 1) == 0)
        if type(value) is not int or not least <= value <= 256 or not power:
            raise ValueError(f"{name}: expected a power of two from {least} to 256, got {value!r}")
    return found


def store(architecture: str, found: Iterable[Finding]) -> Path:
    """Merge what is faster than the table into the file, atomically, and return its path."""
    entries = {
        f"{finding.kernel}/{finding.head_dim}": {
            "tiles": {size: getattr(finding.best, size) for size in _SIZES},
            "gain": round(finding.gain, 3),
            "date": date.today().isoformat(),
        }
        for finding in found
    }
    file = measured_path()
    MeasuredFile(file).merge(_machine(architecture), entries)
    _read.cache_clear()
    return file
