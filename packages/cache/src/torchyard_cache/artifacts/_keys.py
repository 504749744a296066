"""Whose bundles are trusted: the user's own, and those of keys that the user names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import platformdirs
from filelock import FileLock

from torchyard import arguments
from torchyard.evidence import KeyFileError
from torchyard.evidence.keys import (
    PrivateKey,
    PublicKey,
    read_private_key,
    read_public_key,
    write_key_pair,
)

__all__ = ["own_key", "signing_key", "trusted_keys"]

_K = TypeVar("_K", PrivateKey, PublicKey)


def own_key() -> PrivateKey:
    """Return the user's key, which is made when it is first asked for.

    It is ``torchyard/cache.key`` in the user's configuration folder, readable by the user alone.
    """
    path = platformdirs.user_config_path("torchyard") / "cache.key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                write_key_pair(path)
    return read_private_key(path)


def signing_key(of: str, key: str | os.PathLike[str] | None) -> PrivateKey:
    """Return the key of a file; the user's own for None."""
    return own_key() if key is None else _read(read_private_key, of, "key", key)


def trusted_keys(of: str, keys: Sequence[str | os.PathLike[str]] | None) -> tuple[PublicKey, ...]:
    """Return the keys of files; the user's own for None."""
    if keys is None:
        return (own_key().public,)
    given: tuple[object, ...] = arguments.sequence(of, "keys", keys, least=1)
    return tuple(
        _read(read_public_key, of, f"keys[{place}]", key) for place, key in enumerate(given)
    )


def _read(read: Callable[[Path], _K], of: str, name: str, value: object) -> _K:
    """Read a file of a key; an error names the argument that names the file."""
    path = arguments.path(of, name, value)
    try:
        return read(path)
    except KeyFileError as error:
        raise type(error)(f"{of}: {name}: {error}") from error
