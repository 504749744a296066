"""``reuse``: keys and values of prompts that begin alike are computed once."""

from __future__ import annotations

import hashlib
import inspect
import math
import random
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, Self, cast

import torch
from torch import Tensor, nn

from torchyard import arguments
from torchyard_cache._errors import CacheError
from torchyard_cache._reuse._entries import Entries
from torchyard_cache._reuse._identity import fingerprint, state_of
from torchyard_cache._reuse._policies import POLICIES, page_cost
from torchyard_cache._reuse._stats import Stats, write_stats
from torchyard_cache._reuse._tiers import Tier, pack, unpack

__all__ = ["Reuse", "reuse"]

# Keys and values of a page, layer by layer: [1, heads, tokens, size] each.
_Page = tuple[tuple[Tensor, Tensor], ...]
_MEBI: Final = 1 << 20
_TIER: Final = ("name", "errors", "get", "put", "delete")
# Arguments of generate that leave keys and values of a prompt what they are.
_PLAIN: Final = frozenset(
    "inputs input_ids attention_mask generation_config logits_processor stopping_criteria streamer "
    "max_new_tokens max_length min_new_tokens min_length do_sample temperature top_k top_p "
    "typical_p repetition_penalty no_repeat_ngram_size eos_token_id pad_token_id bos_token_id "
    "return_dict_in_generate use_cache num_beams num_return_sequences seed output_scores "
    "output_logits logits_to_keep tokenizer stop_strings".split()
)


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
) -> Reuse:
    """Let ``model.generate`` reuse keys and values of prompts that begin alike.

    Use it as a context manager, or call ``close()``; the model is then as it was. Tokens are those
    that the model gives without it, up to rounding: keys and values of a beginning are computed by
    another call than the rest, so that logits may differ in their last bits. Other weights are
    another model, but for what is written through ``.data``, which torch notes nowhere: call
    ``clear()`` after that.

    Args:
        model: of transformers, a decoder all of whose layers attend to everything before.
        budget: bytes of memory.
        tiers: below memory, in this order: :class:`DiskTier`, :class:`ValkeyTier`.
        policy: ``slru``, ``lru``, ``lfu`` or ``gdsf``: what is dropped first; ``simulate`` compares
            them on requests of yours.
        page: tokens that are found or not found together.
        ttl: seconds that a page is kept; None: as long as there is room.
        tenant: pages of one are never found by another; in memory too.
        verify: share of hits that are computed again without the cache, where nothing is drawn at
            random; pages that gave other tokens are dropped, and the right tokens returned.

    Raises:
        TypeError, ValueError: an argument does not fit.
        CacheError: the model is none whose keys and values can be reused; says why.
    """
    return Reuse(model, budget, tiers, policy, page, ttl, tenant, verify)


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
    ) -> None:
        of = "reuse"
        arguments.instance(of, "model", model, nn.Module, "a model of transformers")
        budget = arguments.integer(of, "budget", budget, least=1)
        policy = arguments.choice(of, "policy", policy, POLICIES)
        self._page = arguments.integer(of, "page", page, least=1)
        self._ttl = math.inf if ttl is None else arguments.number(of, "ttl", ttl, least=0.0)
        self._tenant: str = arguments.instance(of, "tenant", tenant, str, "a string")
        self._verify = arguments.number(of, "verify", verify, least=0.0, most=1.0)
        self._tiers: tuple[Tier, ...] = arguments.sequence(of, "tiers", tiers, _tier)
        _check_model(model)
        self._model: Any = model
        self._pages: Entries[_Page] = Entries(budget, POLICIES[policy], self._ttl)
        self._stats = Stats()
        self._lock = threading.Lock()
        self._random = random.Random(0)
        self._identity: tuple[Any, str] | None = None
        self._seconds_per_token = 0.0
        # As newer transformers call it.
        names = inspect.signature(type(model).forward).parameters
        self._keyword = "cache" if "cache" in names else "past_key_values"
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
        self._pages.clear()

    def clear(self) -> None:
        """Forget every page in memory, as after weights were written to through ``.data``."""
        self._pages.clear()
        self._identity = None

    def stats(self) -> Stats:
        """Return the counts."""
        with self._lock:
            self._stats.bytes, self._stats.entries = self._pages.bytes, len(self._pages)
            self._stats.evictions = self._pages.evictions
            for tier in self._tiers:
                self._stats.tier_errors[tier.name] = tier.errors
            return self._stats

    @torch.no_grad()
    def _call(self, *args: Any, **kwargs: Any) -> Any:
        reason = _reason_to_bypass(args, kwargs)
        if reason:
            with self._lock:
                self._stats.calls += 1
                self._stats.bypassed[reason] += 1
            return self._generate(*args, **kwargs)
        tokens: Tensor = _prompt(args, kwargs)
        chain = self._chain(tokens[0].tolist())
        found, keys = self._found(chain, tokens)
        used = len(found) * self._page
        cache = self._cache(found)
        with self._pages.leased(keys):
            begun = time.perf_counter()
            result = self._generate(*args, **kwargs, **{self._keyword: cache})
            seconds = time.perf_counter() - begun
        drawn = _sequences(result)
        if found and self._is_verified(kwargs):
            with self._lock:
                self._stats.verified += 1
            expected = self._generate(*args, **kwargs)
            if not torch.equal(_sequences(expected), drawn):
                self._quarantine(keys)
                return expected
        self._keep(cache, drawn[0].tolist(), chain, len(found), seconds)
        self._count(tokens.shape[1], used)
        return result

    def _chain(self, tokens: list[int]) -> list[str]:
        """Return a key for each whole page of tokens; it covers everything before, too."""
        state = state_of(self._model)
        if self._identity is None or self._identity[0] != state:
            self._pages.clear()
            self._identity = state, fingerprint(self._model, self._tenant)
        last, keys = self._identity[1], []
        for begin in range(0, len(tokens) - self._page + 1, self._page):
            text = ",".join(map(str, tokens[begin : begin + self._page]))
            last = hashlib.sha256(f"{last}:{text}".encode()).hexdigest()
            keys.append(last)
        return keys

    def _found(self, chain: list[str], tokens: Tensor) -> tuple[list[_Page], list[str]]:
        """Return the pages of the longest beginning that is held; one token at least is left."""
        most = (tokens.shape[1] - 1) // self._page
        found: list[_Page] = []
        for place, key in enumerate(chain[:most]):
            entry = self._pages.get(key)
            page = entry.value if entry is not None else self._below(chain, place, tokens.device)
            if page is None:
                break
            found.append(page)
        return found, chain[: len(found)]

    def _below(self, chain: list[str], place: int, device: torch.device) -> _Page | None:
        """Return a page of a lower tier, and hold it in memory."""
        for tier in self._tiers:
            data = tier.get(chain[place])
            if data is None:
                continue
            tensors = unpack(data, device)
            if tensors is None or len(tensors) % 2 or not _is_page(tensors, self._page):
                tier.delete(chain[place])
                with self._lock:
                    self._stats.quarantined += 1
                continue
            layers = range(len(tensors) // 2)
            page = tuple((tensors[f"k{layer}"], tensors[f"v{layer}"]) for layer in layers)
            self._hold(chain, place, page)
            with self._lock:
                self._stats.tier_hits[tier.name] += 1
            return page
        return None

    def _cache(self, pages: list[_Page]) -> Any:
        """Return a cache of transformers that holds pages: copies, which the model may change."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self._model.config)
        if pages:
            for layer in range(len(pages[0])):
                keys, values = (
                    torch.cat([page[layer][half] for page in pages], dim=-2) for half in (0, 1)
                )
                cache.update(keys, values, layer)
        return cache

    def _keep(
        self, cache: Any, drawn: list[int], chain: list[str], known: int, seconds: float
    ) -> None:
        """Hold the pages that were computed, of the prompt and of what was generated."""
        length = cache.get_seq_length()
        computed = max(1, length - known * self._page)
        with self._lock:
            pace = seconds / computed
            old = self._seconds_per_token
            self._seconds_per_token = pace if not old else 0.9 * old + 0.1 * pace
        keys = self._chain(drawn[:length])
        for place in range(known, len(keys)):
            begin = place * self._page
            part = slice(begin, begin + self._page)
            page = tuple(
                (layer.keys[:, :, part].clone(), layer.values[:, :, part].clone())
                for layer in cache.layers
            )
            if not self._hold(keys, place, page):
                break
            if self._tiers:
                tensors = {
                    f"{name}{number}": half
                    for number, layer in enumerate(page)
                    for name, half in zip("kv", layer, strict=True)
                }
                data = pack(tensors)
                for tier in self._tiers:
                    tier.put(keys[place], data)

    def _hold(self, chain: list[str], place: int, page: _Page) -> bool:
        size = sum(half.numel() * half.element_size() for layer in page for half in layer)
        cost = page_cost(place * self._page, self._page) * max(self._seconds_per_token, 1e-9)
        return self._pages.put(chain[place], page, size, cost, chain[place - 1] if place else "")

    def _is_verified(self, kwargs: dict[str, Any]) -> bool:
        config = kwargs.get("generation_config") or self._model.generation_config
        sampled = kwargs.get("do_sample", getattr(config, "do_sample", False))
        return not sampled and self._random.random() < self._verify

    def _quarantine(self, keys: list[str]) -> None:
        dropped = self._pages.drop(keys[0])
        for tier in self._tiers:
            for key in keys:
                tier.delete(key)
        with self._lock:
            self._stats.quarantined += dropped

    def _count(self, length: int, used: int) -> None:
        with self._lock:
            stats = self._stats
            stats.calls += 1
            stats.hits += used > 0
            stats.tokens_reused += used
            stats.tokens_computed += length - used
            stats.seconds_saved += used * self._seconds_per_token
            stats.tenants[self._tenant or "all"] += used
        write_stats("reuse", self.stats())


def _check_model(model: Any) -> None:
    """Refuse a model whose keys and values cannot be cut into pages, by name."""
    name = type(model).__name__
    config = getattr(model, "config", None)
    if config is None or not callable(getattr(model, "generate", None)):
        raise CacheError(f"reuse: model: expected one of transformers that generates, got {name}")
    if getattr(config, "is_encoder_decoder", False):
        raise CacheError(f"reuse: model: {name} has an encoder; reuse_module reuses its outputs")
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    try:
        layers = DynamicCache(config=config).layers
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"reuse: model: {name} has no cache of keys and values: {error}"
        raise CacheError(text) from error
    others = sorted({type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer})
    if others or not layers:
        kinds = ", ".join(others) or "no layers"
        raise CacheError(
            f"reuse: model: {name} has layers whose state is not keys and values of all tokens "
            f"({kinds}), so that a beginning cannot be cut from it"
        )


def _reason_to_bypass(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return why a call is left alone; empty where its prompt can be looked up."""
    if len(args) > 1:
        return "arguments by position"
    others = sorted(
        name for name, value in kwargs.items() if value is not None and name not in _PLAIN
    )
    if others:
        return f"the argument {others[0]}"
    tokens = _prompt(args, kwargs)
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
        return "no token ids"
    if tokens.shape[0] != 1:
        return "several prompts at once"
    mask = kwargs.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        return "padding"
    config = kwargs.get("generation_config")
    for name, plain in (("num_beams", 1), ("num_return_sequences", 1), ("use_cache", True)):
        value = kwargs.get(name, getattr(config, name, None))
        if value not in (None, plain):
            return f"{name}={value}"
    return ""


def _prompt(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = args[0] if args else kwargs.get("input_ids")
    return kwargs.get("inputs") if found is None else found


def _sequences(result: Any) -> Tensor:
    sequences = getattr(result, "sequences", result)
    assert isinstance(sequences, Tensor)
    return sequences


def _is_page(tensors: dict[str, Tensor], tokens: int) -> bool:
    names = {f"{name}{layer}" for name in "kv" for layer in range(len(tensors) // 2)}
    return tensors.keys() == names and all(
        tensor.dim() == 4 and tensor.shape[0] == 1 and tensor.shape[2] == tokens
        for tensor in tensors.values()
    )
