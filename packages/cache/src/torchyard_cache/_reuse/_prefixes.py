"""``PrefixCache``: sequences of a paged cache share the pages of prompts that begin alike."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self, cast

import torch
from torch import Tensor, nn

from torchyard import arguments
from torchyard_cache._errors import CacheError
from torchyard_cache._reuse._eviction import POLICIES, Entries, Entry, page_cost
from torchyard_cache._reuse._identity import state_of
from torchyard_cache._reuse._pages import page_keys
from torchyard_cache._reuse._stats import Stats, write_stats

__all__ = ["PagedCache", "PrefixCache"]

# What is asked of a paged cache; torchyard-attention is not imported.
_METHODS: Final = ("open", "fork", "truncate", "close", "length")
_ATTRIBUTES: Final = (*_METHODS, "page_size", "sequences", "memory", "reclaim")


class PagedCache(Protocol):
    """What ``torchyard_attention.PagedKVCache`` has, of which a sequence shares pages."""

    reclaim: Callable[[int], None] | None

    @property
    def page_size(self) -> int: ...
    @property
    def sequences(self) -> tuple[int, ...]: ...
    @property
    def memory(self) -> Any: ...

    def open(self) -> int: ...
    def fork(self, sequence: int) -> int: ...
    def truncate(self, sequence: int, length: int) -> None: ...
    def close(self, sequence: int) -> None: ...
    def length(self, sequence: int) -> int: ...


@dataclass(frozen=True, slots=True)
class _Opened:
    """A sequence whose pages may be kept.

    Attributes:
        tenant: whose it is.
        state: of the model when it was opened.
        leases: of the kept pages that it shares.
    """

    tenant: str
    state: object
    leases: ExitStack


class PrefixCache:
    """Sequences of a :class:`torchyard_attention.PagedKVCache` that begin alike share pages.

    Whole pages of what :meth:`keep` is given stay when their sequence is closed, and are found by
    all tokens in them and before: :meth:`open` returns a sequence that has the longest beginning of
    a prompt that is kept, and the model computes the rest. Nothing is copied. Kept pages are
    sequences of the cache, and are dropped where it has too few free pages for a call, those first
    that ``policy`` says; pages of open sequences stay.

    It is used by one thread, as the cache is. Close it, or use it as a context manager: all kept
    pages are free then.

    Args:
        cache: of one model's keys and values.
        model: it. Where a parameter or buffer of it changes, nothing is found that was computed
            before; what is written through ``.data`` torch notes nowhere, so call :meth:`clear`.
        policy: ``slru``, ``lru``, ``lfu`` or ``gdsf``.
        pages: how many are kept at most; None: as many as the cache has.
        ttl: seconds that a page is kept; None: as long as there is room.

    Raises:
        TypeError, ValueError: an argument does not fit.
        CacheError: the cache has a PrefixCache already.
    """

    def __init__(
        self,
        cache: PagedCache,
        model: nn.Module,
        *,
        policy: str = "slru",
        pages: int | None = None,
        ttl: float | None = None,
    ) -> None:
        of = "PrefixCache"
        if isinstance(cache, type) or not all(hasattr(cache, name) for name in _ATTRIBUTES):
            raise arguments.wrong_kind(of, "cache", "a PagedKVCache of torchyard_attention", cache)
        arguments.instance(of, "model", model, nn.Module, "the module whose keys the cache holds")
        policy = arguments.choice(of, "policy", policy, POLICIES)
        most = cache.memory.pages
        pages = most if pages is None else arguments.integer(of, "pages", pages, least=1, most=most)
        seconds = math.inf if ttl is None else arguments.number(of, "ttl", ttl, least=0.0)
        if cache.reclaim is not None:
            raise CacheError(
                "PrefixCache: cache: expected one whose `reclaim` is None, got one that has a "
                "PrefixCache already; close() that, or use it"
            )
        self._cache, self._model = cache, model
        self._entries: Entries[int] = Entries(pages, POLICIES[policy], seconds, self._dropped)
        self._opened: dict[int, _Opened] = {}
        self._state: object = None
        self._stats = Stats()
        self._reclaimer = self._reclaim
        cache.reclaim = self._reclaimer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give all kept pages back to the cache; its open sequences stay."""
        if self._cache.reclaim is self._reclaimer:
            self._cache.reclaim = None
        write_stats("prefixes", self.stats(), force=True)
        self.clear()

    def clear(self) -> None:
        """Forget every kept page; of sequences that are open now, none is kept any more."""
        self._entries.clear()
        self._opened = {one: replace(opened, state=None) for one, opened in self._opened.items()}

    def stats(self) -> Stats:
        """Return the counts; bytes are those of kept pages, which open sequences may share."""
        entries, stats = self._entries, self._stats
        stats.entries, stats.evictions = len(entries), entries.evictions
        stats.bytes = len(entries) * self._cache.memory.page_bytes
        return stats

    def open(self, tokens: Sequence[int] | Tensor, *, tenant: str = "") -> int:
        """Return a new sequence of the cache that has the longest beginning of a prompt.

        Its length says how many tokens it has: whole pages, and never all, so that there is one to
        compute. Close it with the cache's ``close``.

        Args:
            tokens: ids of the whole prompt: a list, or a tensor of integers [T].
            tenant: whose prompt it is; pages of one are never found by another.
        """
        ids = _ids("PrefixCache.open", tokens)
        tenant = arguments.instance("PrefixCache.open", "tenant", tenant, str, "a string")
        self._forget_closed()
        size = self._cache.page_size
        found: list[Entry[int]] = []
        state = self._checked_state()
        for key in page_keys(_identity(tenant), ids[: len(ids) - 1], size):
            entry = self._entries.get(key)
            if entry is None:
                break
            found.append(entry)
        sequence = self._cache.fork(found[-1].value) if found else self._cache.open()
        leases = ExitStack()
        leases.enter_context(self._entries.leased([entry.key for entry in found]))
        self._opened[sequence] = _Opened(tenant, state, leases)
        stats, used = self._stats, len(found) * size
        stats.calls += 1
        stats.hits += used > 0
        stats.tokens_reused += used
        stats.tokens_computed += len(ids) - used
        stats.tenants[tenant or "all"] += used
        write_stats("prefixes", self.stats())
        return sequence

    def keep(self, sequence: int, tokens: Sequence[int] | Tensor) -> int:
        """Keep the whole pages of a sequence, for prompts that begin as it does.

        Call it when the prompt is computed, for those that come meanwhile, or before the sequence
        is closed, with what was generated.

        Args:
            sequence: from :meth:`open`, and still open.
            tokens: ids of the sequence's positions, from the first.

        Returns:
            How many pages are kept that were not before. None is where the model's parameters have
            changed since the sequence was opened.

        Raises:
            ValueError: the sequence is not one of :meth:`open`, or has fewer positions.
        """
        of = "PrefixCache.keep"
        sequence = arguments.integer(of, "sequence", sequence)
        ids = _ids(of, tokens)
        self._forget_closed()
        opened = self._opened.get(sequence)
        if opened is None:
            expected = "a sequence that PrefixCache.open returned, and that is open"
            raise arguments.wrong_value(of, "sequence", expected, sequence)
        length = self._cache.length(sequence)
        if len(ids) > length:
            expected = f"ids of the {length} positions that the sequence has at most"
            raise arguments.wrong_value(of, "tokens", expected, f"{len(ids)} ids")
        if opened.state != self._checked_state():
            return 0
        size, kept, parent = self._cache.page_size, 0, ""
        for place, key in enumerate(page_keys(_identity(opened.tenant), ids, size)):
            if key not in self._entries:
                held = self._cache.fork(sequence)
                self._cache.truncate(held, (place + 1) * size)
                if not self._entries.put(key, held, 1, page_cost(place * size, size), parent):
                    self._cache.close(held)
                    break
                kept += 1
                # The sequence has this very page, so that dropping it would free nothing.
                opened.leases.enter_context(self._entries.leased([key]))
            parent = key
        return kept

    def _checked_state(self) -> object:
        """Return the model's state; forget what another one computed."""
        state = state_of(self._model)
        if state != self._state:
            self._entries.clear()
            self._state = state
        return state

    def _forget_closed(self) -> None:
        """Let pages be dropped that only sequences shared that are closed."""
        for sequence in self._opened.keys() - set(self._cache.sequences):
            self._opened.pop(sequence).leases.close()

    def _reclaim(self, missing: int) -> None:
        self._forget_closed()
        wanted = self._cache.memory.free + missing
        while (short := wanted - self._cache.memory.free) > 0:
            # A page that a fork of an open sequence has is not free after it.
            if not all(self._entries.evict() for _ in range(short)):
                return

    def _dropped(self, entry: Entry[int]) -> None:
        self._cache.close(entry.value)


def _identity(tenant: str) -> str:
    """Return what a tenant's keys begin with: hashed, so that none can be named as a key is."""
    return hashlib.sha256(f"tenant {tenant}".encode()).hexdigest()


def _ids(of: str, tokens: object) -> Sequence[int]:
    """Return token ids as a list."""
    if isinstance(tokens, Tensor):
        if tokens.ndim != 1 or tokens.is_floating_point() or tokens.dtype == torch.bool:
            expected = "ids as a list, or as a tensor of integers [T]"
            raise arguments.wrong_value(
                of, "tokens", expected, f"{tokens.dtype}, shape {list(tokens.shape)}"
            )
        return cast("list[int]", tokens.tolist())
    return arguments.sequence(of, "tokens", tokens, arguments.integer)
