"""Tiers below memory: a folder, and a server that machines share."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_cache._errors import CacheError
from torchyard_cache._reuse._entries import Entries
from torchyard_cache._reuse._policies import POLICIES
from torchyard_cache.artifacts._stores import replace_file

__all__ = ["DiskTier", "Tier", "ValkeyTier", "pack", "unpack"]

_DIGEST: Final = 32
_MOST_BYTES: Final = 1 << 30


class Tier(Protocol):
    """A place for entries below memory. Neither method raises for what the place does."""

    name: str
    errors: int

    def get(self, key: str) -> bytes | None:
        """Return what was put; None where there is nothing, or no answer in time."""

    def put(self, key: str, data: bytes) -> None:
        """Keep data, or do not."""

    def delete(self, key: str) -> None:
        """Forget data."""


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as safetensors behind their sha256."""
    from safetensors.torch import save

    data = save({name: tensor.contiguous().cpu() for name, tensor in tensors.items()})
    return hashlib.sha256(data).digest() + data


def unpack(data: bytes, device: torch.device) -> dict[str, Tensor] | None:
    """Return the tensors; None where they are damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    digest, body = data[:_DIGEST], data[_DIGEST:]
    if len(data) > _MOST_BYTES or hashlib.sha256(body).digest() != digest:
        return None
    try:
        return {name: tensor.to(device) for name, tensor in load(body).items()}
    except (SafetensorError, ValueError):
        return None


class DiskTier:
    """A folder of files, within a budget of bytes; least recently used files go first.

    Args:
        folder: of this cache alone.
        budget: bytes.

    Raises:
        TypeError, ValueError: an argument does not fit.
    """

    name = "disk"

    def __init__(self, folder: str | os.PathLike[str], budget: int) -> None:
        self._folder = arguments.path("DiskTier", "folder", folder)
        budget = arguments.integer("DiskTier", "budget", budget, least=1)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files: Entries[None] = Entries(
            budget, POLICIES["lru"], float("inf"), lambda entry: self._unlink(entry.key)
        )
        self.errors = 0
        # What an earlier process left, the oldest first.
        found = [path for path in self._folder.glob("*.safe") if path.is_file()]
        for path in sorted(found, key=lambda path: path.stat().st_mtime):
            if not self._files.put(path.stem, None, path.stat().st_size, 0.0):
                path.unlink(missing_ok=True)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self._files.bytes

    def get(self, key: str) -> bytes | None:
        """Return a file's bytes."""
        with self._files.leased([key]):
            if self._files.get(key) is None:
                return None
            try:
                return self._path(key).read_bytes()
            except OSError:
                self.errors += 1
        self._files.drop(key)
        return None

    def put(self, key: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        if key in self._files or not self._files.put(key, None, len(data), 0.0):
            return
        try:
            replace_file(self._path(key), data)
        except OSError:
            self.errors += 1
            self._files.drop(key)

    def delete(self, key: str) -> None:
        """Remove a file."""
        self._files.drop(key)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.safe"

    def _unlink(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)


class ValkeyTier:
    """A server of Valkey or Redis that machines share; needs ``torchyard-cache[valkey]``.

    A request that fails or is not answered in time is skipped, and after it the server is left
    alone for a while: a model never waits for a server that is down.

    Args:
        url: such as ``valkey://host:6379/0``.
        timeout: seconds for a request.
        pause: seconds without requests after one that failed.
        ttl: seconds that the server keeps an entry.

    Raises:
        TypeError, ValueError: an argument does not fit.
        CacheError: the client is absent.
    """

    name = "valkey"

    def __init__(
        self, url: str, *, timeout: float = 0.2, pause: float = 5.0, ttl: int = 86400
    ) -> None:
        url = arguments.text("ValkeyTier", "url", url)
        timeout = arguments.number("ValkeyTier", "timeout", timeout, least=0.0)
        self._pause = arguments.number("ValkeyTier", "pause", pause, least=0.0)
        self._ttl = arguments.integer("ValkeyTier", "ttl", ttl, least=1)
        try:
            import valkey
        except ImportError as error:
            raise CacheError(
                "ValkeyTier: its client is absent: pip install 'torchyard-cache[valkey]'"
            ) from error
        self._failures: tuple[type[Exception], ...] = (valkey.ValkeyError, OSError)
        try:
            self._client: Any = valkey.Valkey.from_url(
                url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=None
            )
        except ValueError as error:
            raise arguments.wrong_value(
                "ValkeyTier", "url", "an address such as valkey://host:6379/0", f"{url!r}: {error}"
            ) from error
        self._until = 0.0
        self._lock = threading.Lock()
        self.errors = 0

    def get(self, key: str) -> bytes | None:
        """Return what the server has."""
        found = self._asked(lambda: self._client.get(self._named(key)))
        return found if isinstance(found, bytes) else None

    def put(self, key: str, data: bytes) -> None:
        """Give the server data."""
        self._asked(lambda: self._client.set(self._named(key), data, ex=self._ttl))

    def delete(self, key: str) -> None:
        """Let the server forget data."""
        self._asked(lambda: self._client.delete(self._named(key)))

    def _named(self, key: str) -> str:
        return f"torchyard:{key}"

    def _asked(self, request: Any) -> Any:
        with self._lock:
            if time.monotonic() < self._until:
                return None
        try:
            return request()
        except self._failures as error:
            with self._lock:
                self.errors += 1
                self._until = time.monotonic() + self._pause
            warnings.warn(
                f"torchyard_cache: the shared tier is left alone for {self._pause:g} s: {error}",
                stacklevel=4,
            )
            return None
