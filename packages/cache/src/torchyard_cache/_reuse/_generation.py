"""``reuse``: keys and values of prompts that begin alike are computed once."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self, cast

import torch
from torch import Tensor, nn

from torchyard import arguments
from torchyard_cache._errors import CacheError
from torchyard_cache._reuse._calls import prompt_of, reason_to_bypass, sequences_of, setting_of
from torchyard_cache._reuse._eviction import POLICIES
from torchyard_cache._reuse._identity import fingerprint, length_limit, state_of
from torchyard_cache._reuse._pages import page_keys
from torchyard_cache._reuse._probe import cache_keyword, fill, probe
from torchyard_cache._reuse._stats import Stats, write_stats
from torchyard_cache._reuse._store import Found, Store
from torchyard_cache._reuse._tiers import Tier
from torchyard_cache._reuse._watch import GenerationWatch

if TYPE_CHECKING:
    from torchyard_cache._reuse._pages import Page, States
    from torchyard_cache._reuse._recording import RecordingCache

__all__ = ["Reuse", "reuse"]

_MEBI: Final = 1 << 20
_TIER: Final = ("name", "errors", "get", "put", "delete")


def reuse(
    model: nn.Module,
    *,
    budget: int = 1024 * _MEBI,
    tiers: Sequence[Tier] = (),
    policy: str = "slru",
    page: int = 64,
    ttl: float | None = None,
    tenant: str = "",
    verify: float = 0.0,
    strict: bool = False,
) -> Reuse:
    """Let ``model.generate`` reuse keys and values of prompts that begin alike.

    Use it as a context manager, or call ``close()``; the model is then as it was. Tokens are those
    that the model gives without it, up to rounding: keys and values of a beginning are computed by
    another call than the rest, so that logits may differ in their last bits. Other weights are
    another model, but for what is written through ``.data``, which torch notes nowhere: call
    ``clear()`` after that.

    Args:
        model: of transformers, a decoder; it is tried with a prompt of 32 tokens.
        budget: bytes of memory.
        tiers: below memory, in this order: :class:`DiskTier`, :class:`ValkeyTier`.
        policy: ``slru``, ``lru``, ``lfu`` or ``gdsf``: what is dropped first; ``simulate`` compares
            them on requests of yours.
        page: tokens that are found or not found together.
        ttl: seconds that a page is kept; None: as long as there is room.
        tenant: pages of one are never found by another; in memory too.
        verify: share of hits that are computed again without the cache, where nothing is drawn at
            random; pages that gave other tokens are dropped, and the right tokens returned.
        strict: whether logits are the same to the last bit, whatever is found. Every prompt is then
            computed page by page, so that each page is a result of equal shapes wherever it is
            computed, and what was generated is not kept. A prompt of which nothing is found takes
            longer. Its kernels have to be deterministic, as torch's are on CPUs.

    Raises:
        TypeError, ValueError: an argument does not fit.
        CacheError: the model is none whose keys and values can be reused; says why.
    """
    return Reuse(model, budget, tiers, policy, page, ttl, tenant, verify, strict)


def _tier(of: str, name: str, value: object) -> Tier:
    """Return a place for entries; a class of one's own needs a tier's attributes alone."""
    if isinstance(value, type) or not all(hasattr(value, known) for known in _TIER):
        raise arguments.wrong_kind(
            of, name, f"an object with {', '.join(_TIER)}, such as a DiskTier", value
        )
    return cast("Tier", value)


class Reuse:
    """Keys and values of a model's prompts; see :func:`reuse`."""

    def __init__(
        self,
        model: nn.Module,
        budget: int,
        tiers: Sequence[Tier],
        policy: str,
        page: int,
        ttl: float | None,
        tenant: str,
        verify: float,
        strict: bool,
    ) -> None:
        of = "reuse"
        arguments.instance(of, "model", model, nn.Module, "a model of transformers")
        budget = arguments.integer(of, "budget", budget, least=1)
        policy = arguments.choice(of, "policy", policy, POLICIES)
        self._page = arguments.integer(of, "page", page, least=1)
        self._ttl = math.inf if ttl is None else arguments.number(of, "ttl", ttl, least=0.0)
        self._tenant: str = arguments.instance(of, "tenant", tenant, str, "a string")
        self._verify = arguments.number(of, "verify", verify, least=0.0, most=1.0)
        self._strict = arguments.boolean(of, "strict", strict)
        self._tiers: tuple[Tier, ...] = arguments.sequence(of, "tiers", tiers, _tier)
        self._keyword, sample = _probed(model)
        self._model: Any = model
        self._stateful = bool(sample[1])
        self._limit = length_limit(self._model.config)
        self._stats = Stats()
        self._lock = threading.Lock()
        self._store = Store(
            budget,
            policy,
            self._ttl,
            self._tiers,
            size=self._page,
            sample=sample,
            stats=self._stats,
            lock=self._lock,
        )
        self._random = random.Random(0)
        self._identity: tuple[Any, str] | None = None
        self._original = model.__dict__.get("generate")
        self._generate: Any = self._model.generate
        self._model.__dict__["generate"] = self._call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the model as it was, and forget every page in memory."""
        if self._model.__dict__.get("generate") == self._call:
            if self._original is None:
                del self._model.__dict__["generate"]
            else:
                self._model.__dict__["generate"] = self._original
        write_stats("reuse", self.stats(), force=True)
        self._store.entries.clear()

    def clear(self) -> None:
        """Forget every page in memory, as after weights were written to through ``.data``."""
        self._store.entries.clear()
        self._identity = None

    @property
    def doubling(self) -> float:
        """Tokens before a token at which the model takes twice as long for it as without any.

        It is learned from calls whose prompts have different lengths; before, it is 4,096. Give it
        to :func:`simulate`.
        """
        return self._store.costs.doubling

    def stats(self) -> Stats:
        """Return the counts."""
        with self._lock:
            self._store.count()
            return self._stats

    @torch.no_grad()
    def _call(self, *args: Any, **kwargs: Any) -> Any:
        reason = reason_to_bypass(self._model, args, kwargs, self._limit)
        if reason:
            with self._lock:
                self._stats.calls += 1
                self._stats.bypassed[reason] += 1
            return self._generate(*args, **kwargs)
        from torchyard_cache._reuse._recording import RecordingCache

        tokens: Tensor = prompt_of(args, kwargs)
        chain = self._chain(tokens[0].tolist())
        # One token at least is left to compute.
        most = (tokens.shape[1] - 1) // self._page
        found = self._store.find(chain[:most])
        keys = chain[: len(found.pages)]
        cache = RecordingCache.restored(self._model.config, found.pages, self._page, found.states)
        with self._store.leased(keys):
            watch = GenerationWatch(cache, self._page)
            states = self._on_the_way(cache, tokens, found, most)
            given = watch.added_to(kwargs)
            result = self._generate(*args, **given, **{self._keyword: cache})
        drawn = sequences_of(result)
        if found.pages and self._is_verified(kwargs):
            with self._lock:
                self._stats.verified += 1
            expected = self._recomputed(tokens, most, args, kwargs)
            if not torch.equal(sequences_of(expected), drawn):
                self._store.drop(keys)
                return expected
        kept = drawn[0, : most * self._page + 1] if self._strict else drawn[0]
        states |= {} if self._strict else watch.last
        length, used = tokens.shape[1], len(found.pages) * self._page
        with self._lock:
            self._store.costs.note(used, length - used - 1, watch.seconds)
        self._keep(cache, kept.tolist(), len(found.pages), states)
        self._count(length, used)
        return result

    def _recomputed(
        self, tokens: Tensor, most: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what a call gives where nothing is found."""
        if not self._strict:
            return self._generate(*args, **kwargs)
        from torchyard_cache._reuse._recording import RecordingCache

        cache = RecordingCache.restored(self._model.config, [], self._page, {})
        self._on_the_way(cache, tokens, Found([], {}, 0), most)
        return self._generate(*args, **kwargs, **{self._keyword: cache})

    def _on_the_way(
        self, cache: RecordingCache, tokens: Tensor, found: Found, most: int
    ) -> dict[int, States]:
        """Compute a prompt up to where states are worth a copy; return them by pages before.

        That is the last whole page, for this prompt's next turn, and the end of what is held of
        another prompt, from where on others may differ, too. Where bits have to be the same, it is
        computed page by page.
        """
        worth = {found.known, most} if self._stateful else set()
        states = {}
        for place in range(1, most + 1) if self._strict else sorted(worth):
            if place > len(found.pages):
                fill(self._generate, self._keyword, cache, tokens[:, : place * self._page])
                if place in worth:
                    states[place] = cache.states()
        return states

    def _chain(self, tokens: list[int]) -> list[str]:
        """Return a key for each whole page of tokens; it covers everything before, too."""
        state = state_of(self._model)
        if self._identity is None or self._identity[0] != state:
            self._store.entries.clear()
            # Pages that were computed otherwise have other bits.
            salt = f"strict:{self._tenant}" if self._strict else f":{self._tenant}"
            self._identity = state, fingerprint(self._model, salt)
        return page_keys(self._identity[1], tokens, self._page)

    def _keep(
        self,
        cache: RecordingCache,
        drawn: list[int],
        known: int,
        states: dict[int, States],
    ) -> None:
        """Hold the pages that were computed, of the prompt and of what was generated."""
        # The last token was drawn, and not computed with.
        cache.length = len(drawn) - 1
        length = cache.get_seq_length()
        chain = self._chain(drawn[: int(min(length, self._limit))])
        for place, page in enumerate(cache.pages(known, len(chain), self._page), known):
            if not self._store.hold(chain, place, page):
                break
            if place + 1 in states:
                self._store.hold_states(chain, place, states[place + 1])

    def _is_verified(self, kwargs: dict[str, Any]) -> bool:
        sampled = setting_of(self._model, kwargs, "do_sample")
        return not sampled and self._random.random() < self._verify

    def _count(self, length: int, used: int) -> None:
        with self._lock:
            stats = self._stats
            stats.calls += 1
            stats.hits += used > 0
            stats.tokens_reused += used
            stats.tokens_computed += length - used
            stats.seconds_saved += self._store.costs.seconds(0, used)
            stats.tenants[self._tenant or "all"] += used
        write_stats("reuse", self.stats())


def _probed(model: Any) -> tuple[str, tuple[Page, States]]:
    """Return how a model takes a cache, and a page of it; refuse it by name where it has none."""
    name = type(model).__name__
    config = getattr(model, "config", None)
    if config is None or not callable(getattr(model, "generate", None)):
        raise CacheError(f"reuse: model: expected one of transformers that generates, got {name}")
    if getattr(config, "is_encoder_decoder", False):
        raise CacheError(f"reuse: model: {name} has an encoder; reuse_module reuses its outputs")
    try:
        keyword = cache_keyword(model)
        return keyword, probe(model, model.generate, keyword)
    except CacheError as error:
        raise CacheError(f"reuse: model: {name}: {error}") from error
