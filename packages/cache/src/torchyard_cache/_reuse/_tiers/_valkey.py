"""``ValkeyTier``: a server that machines share."""

from __future__ import annotations

import threading
import time
import warnings
from typing import Any

from torchyard import arguments
from torchyard_cache._errors import CacheError

__all__ = ["ValkeyTier"]


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
