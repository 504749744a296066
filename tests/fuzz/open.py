"""Calls that are not yet refused, or taken, as they should be; each must leave when it is."""

from __future__ import annotations

from typing import Final

__all__ = ["OPEN"]

# Packages of which some calls still end in errors that name no argument, or take what is none.
_EXPORT: Final = (
    *("Artifact", "Artifact.files", "Artifact.run", "Artifact.runner", "Artifact.save"),
    *("Artifact.to_bytes", "Dimension", "Dimension.parse", "Finding"),
    *("export", "load", "write_runner"),
)

OPEN: Final = frozenset(
    f"{package}.{name}" for package, names in (("torchyard_export", _EXPORT),) for name in names
)
