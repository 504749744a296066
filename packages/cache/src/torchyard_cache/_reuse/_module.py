"""``reuse_module``: outputs of a module for inputs that it has seen."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from torchyard import arguments
from torchyard_cache._reuse._eviction import POLICIES, Entries
from torchyard_cache._reuse._identity import digest_of_tensor, state_of
from torchyard_cache._reuse._stats import Stats, write_stats

__all__ = ["ReusedModule", "reuse_module"]

_MEBI: Final = 1 << 20


class _Unknown(Exception):
    """An argument or a result that cannot be compared or copied."""


def reuse_module(
    module: nn.Module,
    *,
    budget: int = 256 * _MEBI,
    policy: str = "gdsf",
    ttl: float | None = None,
) -> ReusedModule:
    """Let a module return the outputs of inputs that it has seen, such as an encoder of images.

    Outputs are found by the exact bytes of all inputs, and by the place and version of every
    parameter and buffer: a step of an optimiser, or loaded weights, make all of them new. Calls in
    training, calls of which a gradient is wanted, and calls with arguments that are no tensors,
    numbers, texts or containers of these go to the module as they are. A caller gets copies.

    Use it as a context manager, or call ``close()``; the module is then as it was.

    Args:
        module: whose ``forward`` depends on its inputs, parameters and buffers alone.
        budget: bytes of memory.
        policy: ``gdsf``, ``lru``, ``slru`` or ``lfu``: what is dropped first.
        ttl: seconds that an output is kept; None: as long as there is room.

    Raises:
        TypeError, ValueError: an argument does not fit.
    """
    return ReusedModule(module, budget, policy, ttl)


class ReusedModule:
    """Outputs of a module; see :func:`reuse_module`."""

    def __init__(self, module: nn.Module, budget: int, policy: str, ttl: float | None) -> None:
        of = "reuse_module"
        arguments.instance(of, "module", module, nn.Module, "a torch.nn.Module")
        budget = arguments.integer(of, "budget", budget, least=1)
        policy = arguments.choice(of, "policy", policy, POLICIES)
        ttl = math.inf if ttl is None else arguments.number(of, "ttl", ttl, least=0.0)
        self._module = module
        self._outputs: Entries[Any] = Entries(budget, POLICIES[policy], ttl)
        self._stats = Stats()
        self._lock = threading.Lock()
        self._state: Any = None
        self._original = module.__dict__.get("forward")
        self._forward: Callable[..., Any] = module.forward
        module.__dict__["forward"] = self._call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the module as it was, and forget every output."""
        if self._module.__dict__.get("forward") == self._call:
            if self._original is None:
                del self._module.__dict__["forward"]
            else:
                self._module.__dict__["forward"] = self._original
        self._outputs.clear()

    def clear(self) -> None:
        """Forget every output, as after parameters were written to through ``.data``."""
        self._outputs.clear()

    def stats(self) -> Stats:
        """Return the counts; tokens are none."""
        with self._lock:
            self._stats.bytes, self._stats.entries = self._outputs.bytes, len(self._outputs)
            self._stats.evictions = self._outputs.evictions
            return self._stats

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            self._stats.calls += 1
        try:
            key = self._key(args, kwargs)
        except _Unknown as why:
            with self._lock:
                self._stats.bypassed[str(why)] += 1
            return self._forward(*args, **kwargs)
        entry = self._outputs.get(key)
        if entry is not None:
            with self._lock:
                self._stats.hits += 1
                self._stats.seconds_saved += entry.use.cost
            write_stats("reuse_module", self.stats())
            return _copied(entry.value)
        begun = time.perf_counter()
        result = self._forward(*args, **kwargs)
        seconds = time.perf_counter() - begun
        try:
            kept = _copied(result)
        except _Unknown as why:
            with self._lock:
                self._stats.bypassed[f"its result: {why}"] += 1
            return result
        self._outputs.put(key, kept, _size(kept), seconds)
        write_stats("reuse_module", self.stats())
        return result

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self._module.training:
            raise _Unknown("training")
        if torch.is_grad_enabled() and (
            any(parameter.requires_grad for parameter in self._module.parameters())
            or _wants_gradient((args, kwargs))
        ):
            raise _Unknown("a gradient is wanted")
        if torch.compiler.is_compiling():
            raise _Unknown("torch.compile")
        state = state_of(self._module)
        if state != self._state:
            self._outputs.clear()
            self._state = state
        hashed = hashlib.sha256()
        _update(hashed, (args, kwargs))
        cast = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
        hashed.update(f"{cast} {torch.get_default_dtype()}".encode())
        return hashed.hexdigest()


def _update(hashed: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_meta:
            raise _Unknown("a tensor without plain elements")
        hashed.update(f"tensor {value.device}".encode())
        hashed.update(digest_of_tensor(value))
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        hashed.update(f"{type(value).__name__} {value!r} ".encode())
    elif isinstance(value, list | tuple):
        hashed.update(f"{type(value).__name__} {len(value)}".encode())
        for item in value:
            _update(hashed, item)
    elif isinstance(value, dict):
        hashed.update(f"dict {len(value)}".encode())
        for name in sorted(value, key=repr):
            _update(hashed, name)
            _update(hashed, value[name])
    elif isinstance(value, torch.dtype | torch.device):
        hashed.update(f"{value} ".encode())
    else:
        raise _Unknown(f"an argument of type {type(value).__name__}")


def _wants_gradient(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.requires_grad
    if isinstance(value, dict):
        return any(map(_wants_gradient, value.values()))
    return isinstance(value, list | tuple) and any(map(_wants_gradient, value))


def _copied(value: Any) -> Any:
    """Return a result whose tensors nobody else holds."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_copied, value))
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if type(value) is dict:
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, dict):
        # A ModelOutput of transformers.
        return type(value)(**{name: _copied(item) for name, item in value.items()})
    raise _Unknown(f"type {type(value).__name__}")


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 64
