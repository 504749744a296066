"""Measured decisions: which implementation was the fastest for a bucket, on this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from torchyard._contracts.contract import ContractId
from torchyard._platforms.platform import Platform, cpu_model
from torchyard._plugins.plugin import Plugin
from torchyard._registry.measured import MeasuredFile, digest_of
from torchyard._version import __version__

_CHOSEN: Final = "implementation"


def tuned_path() -> Path:
    """Return the file's path, in the user's cache folder."""
    import platformdirs

    return Path(platformdirs.user_cache_path("torchyard")) / "tuned-decisions.json"


class TunedDecisions:
    """What was measured on this machine with these versions; read once, kept as it is written.

    Args:
        platform: the machine.
        plugins: what is installed. A decision that was measured with other versions is not used.
    """

    def __init__(self, platform: Platform, plugins: Iterable[Plugin]) -> None:
        self._file = MeasuredFile(tuned_path())
        self._machine = digest_of(
            (
                __version__,
                *(platform.system, platform.machine, cpu_model() or ""),
                *(str(platform.cpu_cores), " ".join(sorted(platform.cpu_features))),
                # Nothing here may depend on whether torch is imported yet.
                (platform.torch or "").partition("+")[0],
                *sorted(f"{item.name} {item.source.version}" for item in plugins),
            )
        )
        self._chosen: dict[str, str] = {}
        try:
            for key, entry in self._file.read(self._machine).items():
                self._chosen[str(key)] = str(entry[_CHOSEN])
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(
                f"{self._file.path}: not used: {error}; delete it, or measure again", stacklevel=2
            )

    def of(self, contract: ContractId) -> tuple[tuple[str, str], ...]:
        """Return bucket and implementation of each measured decision of a contract."""
        start = f"{contract} "
        return tuple(
            (key.removeprefix(start), name)
            for key, name in self._chosen.items()
            if key.startswith(start)
        )

    def record(
        self, contract: ContractId, bucket: str, implementation: str, measured: dict[str, Any]
    ) -> Path:
        """Keep a decision, with what it was taken from, and return where it is kept.

        Raises:
            OSError, ValueError, KeyError, TypeError: the file cannot be read or written.
        """
        key = f"{contract} {bucket}"
        self._file.merge(self._machine, {key: {**measured, _CHOSEN: implementation}})
        self._chosen[key] = implementation
        return self._file.path
