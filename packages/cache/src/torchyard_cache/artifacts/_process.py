"""What this process loaded, and how new the bundles were that this user loaded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

import platformdirs
from filelock import FileLock

from torchyard_cache._errors import BundleError
from torchyard_cache.artifacts._bundle import Bundle
from torchyard_cache.artifacts._manifest import Artifact
from torchyard_cache.artifacts._stores import replace_file

__all__ = ["LOADED", "check_serial"]


@dataclass(slots=True)
class _Loaded:
    """What was loaded in this process.

    Attributes:
        artifacts: by kind and key, with contents: they are saved again.
        skipped: why bundles' artifacts were not used, such as another torch.
        bundles: how many were loaded.
    """

    artifacts: dict[tuple[str, str], tuple[Artifact, bytes]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    bundles: int = 0


LOADED: Final = _Loaded()


def check_serial(bundle: Bundle, newer_than: int, *, allow_older: bool) -> None:
    """Refuse a bundle that is older than one of its name and key that was loaded before.

    The newest serial of each is kept in the user's folder of states.

    Raises:
        BundleError: says both serials.
    """
    serial = bundle.manifest.serial
    if serial <= newer_than:
        raise BundleError(
            f"load: newer_than: expected bundle {bundle.manifest.name} to have a serial above "
            f"{newer_than}, got {serial}"
        )
    if bundle.signer is None:
        return
    path = platformdirs.user_state_path("torchyard") / "bundle-serials.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    name = f"{bundle.signer.hex}/{bundle.manifest.name}"
    with FileLock(f"{path}.lock"):
        known = _read(path.read_bytes()) if path.exists() else {}
        newest = known.get(name, 0)
        if serial < newest and not allow_older:
            raise BundleError(
                f"bundle {bundle.manifest.name}: its serial {serial} is older than {newest}, which "
                f"was loaded before; allow_older=True where that is meant"
            )
        if serial > newest:
            known[name] = serial
            replace_file(path, json.dumps(known, indent=1, sort_keys=True).encode())


def _read(data: bytes) -> dict[str, int]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return {k: v for k, v in found.items() if isinstance(v, int)} if isinstance(found, dict) else {}
