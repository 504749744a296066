"""Bundles of compiled artifacts: saved, verified, loaded, merged, pruned and explained.

See docs/cache-artifacts.md.
"""

from __future__ import annotations

from torchyard_cache.artifacts._explanation import CompiledGraph, Explanation, Lookup, explain
from torchyard_cache.artifacts._kinds import register
from torchyard_cache.artifacts._manifest import Artifact, Machine, Manifest
from torchyard_cache.artifacts._saving import (
    Inspection,
    Loading,
    Merging,
    inspect,
    load,
    merge,
    prune,
    save,
)

__all__ = [
    "Artifact",
    "CompiledGraph",
    "Explanation",
    "Inspection",
    "Loading",
    "Lookup",
    "Machine",
    "Manifest",
    "Merging",
    "explain",
    "inspect",
    "load",
    "merge",
    "prune",
    "register",
    "save",
]
