"""Bundles made by hand, without a compiler."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchyard_cache.artifacts._bundle import Bundle
from torchyard_cache.artifacts._keys import own_key
from torchyard_cache.artifacts._manifest import SCHEMA, Artifact, Manifest, this_machine

__all__ = ["artifact", "bundle", "snapshot", "written"]


def artifact(kind: str, key: str, content: bytes, **changes: Any) -> Artifact:
    """Return what a manifest says of some content."""
    digest = hashlib.sha256(content).hexdigest()
    return replace(Artifact(kind, key, len(content), digest, 1.0, 1.0), **changes)


def bundle(*parts: tuple[str, str, bytes], serial: int = 0, **changes: Any) -> Bundle:
    """Return a bundle of (kind, key, content), with parts of its manifest changed."""
    items = tuple(sorted((artifact(*part) for part in parts), key=lambda item: item.key))
    found = Manifest(SCHEMA, "made", serial or time.time_ns(), this_machine(), {}, items)
    contents = {hashlib.sha256(content).hexdigest(): content for _, _, content in parts}
    return Bundle(replace(found, **changes), contents)


def written(path: Path, *parts: tuple[str, str, bytes], **changes: Any) -> Path:
    """Write such a bundle, signed by the user's own key."""
    path.write_bytes(bundle(*parts, **changes).to_bytes(own_key()))
    return path


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, by its name there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
