"""Calls of torchyard_cache's public functions that are right."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

import torch
from torch import nn

import torchyard_cache
from tests.fuzz.harness import call_of
from tests.fuzz.kinds import BOOL, OTHER, REFUSED, TEXT, Kind, choice, integer, number, optional
from torchyard_cache import artifacts

__all__ = ["CALLS"]

_KEPT: Final = Path("kept")
_PATHS: Final = Kind(
    lambda v: v if isinstance(v, list | tuple) and v and all(map(_is_path, v)) else REFUSED,
    free=True,
)
_NONE: Final = Kind(lambda v: v if v is None else REFUSED)
_TIERS: Final = Kind(lambda v: v if isinstance(v, list | tuple | range) else REFUSED, free=True)
_IDS: Final = Kind(lambda v: v if isinstance(v, list | tuple | range) else REFUSED, free=True)
_POLICIES: Final = ("gdsf", "lfu", "lru", "slru")
_FREE: Final = Kind(lambda v: v if isinstance(v, str | Path) else REFUSED, free=True)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | Path)


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    """Make a folder the current one, and the user's; a bundle lies there."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        names = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "TORCHINDUCTOR_CACHE_DIR")
        with (
            mock.patch.dict("os.environ", dict.fromkeys(names, folder)),
            warnings.catch_warnings(action="ignore"),
        ):
            artifacts.save(_KEPT, kinds=["triton"])
            yield


def _within(function: Callable[..., Any]) -> Callable[..., None]:
    def run(**given: Any) -> None:
        with _inside():
            function(**given)

    return run


@cache
def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: Any = LlamaConfig
    build: Any = LlamaForCausalLM
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 9}
    return build(settings(**sizes, num_attention_heads=2)).eval()


def _reused(**given: Any) -> None:
    with torchyard_cache.reuse(**given) as found:
        found.stats()


def _reused_module(**given: Any) -> Any:
    with torchyard_cache.reuse_module(**given), torch.no_grad():
        return given["module"](torch.ones(2))


def _on_disk(**given: Any) -> None:
    with _inside():
        torchyard_cache.DiskTier(**given).put("a", b"a")


def _prefixes(**given: Any) -> None:
    with torchyard_cache.PrefixCache(**given) as found:
        found.open([1, 2])


def _paged() -> Any:
    from torchyard_attention import PagedKVCache

    return PagedKVCache(8, 4, kv_heads=1, head_dim=4)


def _on_prefixes(name: str) -> Callable[..., Any]:
    def run(**given: Any) -> Any:
        cache = _paged()
        with torchyard_cache.PrefixCache(cache, nn.Linear(1, 1)) as found:
            cache.extend(found.open([1, 2]), 2)
            return getattr(found, name)(**given)

    return run


class _Nowhere:
    """A tier that keeps the last entry."""

    name, errors, data = "nowhere", 0, b""

    def get(self, key: str) -> bytes | None:
        return self.data or None

    def put(self, key: str, data: bytes) -> None:
        self.data = data

    def delete(self, key: str) -> None:
        self.data = b""


def _compressed(**given: Any) -> float:
    tier = torchyard_cache.CompressedTier(**given)
    tier.put("a", b"a")
    tier.get("a")
    return tier.share


CALLS: Final = (
    call_of(
        "torchyard_cache.artifacts.save",
        {"path": _KEPT, "name": None, "kinds": ["triton"], "key": None},
        _within(artifacts.save),
        path=_FREE,
        name=optional(TEXT),
        kinds=_NONE,
        key=_NONE,
    ),
    call_of(
        "torchyard_cache.artifacts.load",
        {
            "path": _KEPT,
            "keys": None,
            "trust_unsigned": False,
            "newer_than": 0,
            "allow_older": False,
            "kinds": None,
        },
        _within(artifacts.load),
        keys=_NONE,
        trust_unsigned=BOOL,
        newer_than=integer(0, 1 << 60),
        allow_older=BOOL,
        kinds=_NONE,
        says={"path": "path|load"},
    ),
    call_of(
        "torchyard_cache.artifacts.inspect",
        {"path": _KEPT, "keys": None},
        _within(artifacts.inspect),
        keys=_NONE,
        says={"path": "path|inspect"},
    ),
    call_of(
        "torchyard_cache.artifacts.merge",
        {
            "paths": [_KEPT],
            "out": Path("out"),
            "name": None,
            "keys": None,
            "trust_unsigned": False,
            "key": None,
        },
        _within(artifacts.merge),
        paths=_PATHS,
        out=_FREE,
        name=optional(TEXT),
        keys=_NONE,
        trust_unsigned=BOOL,
        key=_NONE,
        says={"out": "out|path"},
    ),
    call_of(
        "torchyard_cache.artifacts.prune",
        {"path": _KEPT, "max_bytes": 10, "max_days": 1.0, "keys": None, "key": None},
        _within(artifacts.prune),
        max_bytes=optional(integer(0)),
        max_days=optional(number(0)),
        keys=_NONE,
        key=_NONE,
        says={"path": "path|prune"},
    ),
    call_of(
        "torchyard_cache.artifacts.register",
        {"kind": "fuzzed", "folder": _KEPT},
        _within(artifacts.register),
        kind=TEXT,
        folder=_FREE,
    ),
    call_of(
        "torchyard_cache.reuse",
        lambda: {
            "model": _llama(),
            "budget": 1 << 20,
            "tiers": (),
            "policy": "gdsf",
            "page": 8,
            "ttl": 10.0,
            "tenant": "a",
            "verify": 0.0,
            "strict": False,
        },
        _reused,
        model=OTHER,
        budget=integer(1),
        tiers=_TIERS,
        policy=choice(*_POLICIES),
        page=integer(1),
        ttl=optional(number(0)),
        tenant=Kind(lambda v: v if isinstance(v, str) else REFUSED),
        verify=number(0, 1),
        strict=BOOL,
    ),
    call_of(
        "torchyard_cache.simulate",
        {"trace": [[1, 2, 3]], "budget": 4, "page": 2, "policies": ("lru",)},
        trace=Kind(lambda v: REFUSED),
        budget=integer(1),
        page=integer(1),
        policies=Kind(lambda v: v if isinstance(v, list | tuple | range) else REFUSED, free=True),
    ),
    call_of(
        "torchyard_cache.prompt_trace",
        {"requests": 2, "prompts": 2, "length": 8, "seed": 0},
        lambda **given: next(torchyard_cache.prompt_trace(**given), None),
        requests=integer(0),
        prompts=integer(1, 1 << 20),
        length=integer(2, 1 << 20),
        seed=integer(),
    ),
    call_of(
        "torchyard_cache.chat_trace",
        {"chats": 2, "turns": 2, "length": 8, "seed": 0},
        lambda **given: next(torchyard_cache.chat_trace(**given), None),
        chats=integer(0, 1 << 20),
        turns=integer(1, 1 << 20),
        length=integer(2, 1 << 20),
        seed=integer(),
    ),
    call_of(
        "torchyard_cache.reuse_module",
        lambda: {"module": nn.ReLU().eval(), "budget": 1 << 20, "policy": "lru", "ttl": 10.0},
        _reused_module,
        module=OTHER,
        budget=integer(1),
        policy=choice(*_POLICIES),
        ttl=optional(number(0)),
    ),
    call_of(
        "torchyard_cache.CompressedTier",
        lambda: {"tier": _Nowhere(), "form": "int8"},
        _compressed,
        tier=OTHER,
        form=choice("int8", "fp8"),
    ),
    call_of(
        "torchyard_cache.DiskTier",
        {"folder": _KEPT.with_name("folder"), "budget": 100},
        _on_disk,
        folder=_FREE,
        budget=integer(1),
    ),
    call_of(
        "torchyard_cache.MemoryTier",
        {"budget": 100},
        lambda **given: torchyard_cache.MemoryTier(**given).put("a", b"a"),
        budget=integer(1),
    ),
    call_of(
        "torchyard_cache.PrefixCache",
        lambda: {
            "cache": _paged(),
            "model": nn.Linear(1, 1),
            "policy": "lru",
            "pages": 2,
            "ttl": 10.0,
        },
        _prefixes,
        cache=OTHER,
        model=OTHER,
        policy=choice(*_POLICIES),
        pages=optional(integer(1, 8)),
        ttl=optional(number(0)),
    ),
    call_of(
        "torchyard_cache.PrefixCache.open",
        {"tokens": [1, 2], "tenant": "a"},
        _on_prefixes("open"),
        tokens=_IDS,
        tenant=Kind(lambda v: v if isinstance(v, str) else REFUSED),
    ),
    call_of(
        "torchyard_cache.PrefixCache.keep",
        {"sequence": 0, "tokens": [1, 2]},
        _on_prefixes("keep"),
        sequence=integer(0, 0),
        tokens=_IDS,
    ),
    call_of(
        "torchyard_cache.ValkeyTier",
        {"url": "valkey://localhost:1/0", "timeout": 0.1, "pause": 1.0, "ttl": 10},
        lambda **given: torchyard_cache.ValkeyTier(**given).errors,
        url=TEXT,
        timeout=number(0),
        pause=number(0),
        ttl=integer(1),
    ),
)
