"""A call of torch's that another implementation may compute, and why one is left alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from torchyard import Decision, registry
from torchyard_compile._choice import LeftAlone, implementation_of

__all__ = ["Rerouting", "check_installed", "check_plain", "choice"]

_PLAIN = frozenset({Tensor, nn.Parameter})


@dataclass(frozen=True, slots=True)
class Rerouting:
    """How a call of torch's would be computed.

    Attributes:
        form: what a decision depends on besides the settings: sizes, dtypes, flags.
        decide: returns the registry's decision for the call.
        run: computes the call by the op of ours, with torch's result type.
    """

    form: Hashable
    decide: Callable[[], Decision]
    run: Callable[[], Any]


def check_plain(*tensors: Tensor | None) -> None:
    """Leave a call alone whose tensors are of a subclass, or are none that kernels read.

    Raises:
        LeftAlone: names what a tensor is.
    """
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in _PLAIN:
            raise LeftAlone(f"an argument is a {type(tensor).__name__}, no plain tensor")
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            raise LeftAlone(f"a tensor is {tensor.layout} on {tensor.device.type}")


def check_installed(package: str) -> None:
    """Leave a call alone where the package with its op is not there.

    Raises:
        LeftAlone: names the distribution.
    """
    if not _is_installed(package):
        raise LeftAlone(f"{package.replace('_', '-')} is not installed")


def choice(rerouting: Rerouting) -> tuple[str, str]:
    """Return what the registry chooses for a call, and why.

    Raises:
        LeftAlone: that is torch's own, or nothing.
    """
    cache = registry().decision_cache()
    key = "reroute", rerouting.form, _autocast()
    found = cache.get(key)
    if found is None:
        found = cache[key] = _ask(rerouting)
    implementation, reason = found
    if not implementation:
        raise LeftAlone(reason)
    return implementation, reason


def _ask(rerouting: Rerouting) -> tuple[str, str]:
    try:
        return implementation_of(rerouting.decide)
    except LeftAlone as why:
        return "", str(why)


@functools.cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _autocast() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
