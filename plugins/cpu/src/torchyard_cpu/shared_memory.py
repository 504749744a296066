"""cpu.shared_memory: processes of one host reach one another through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Final

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_collectives.contract import CONTRACT, SharedMemory, SharedMemoryRequest

__all__ = ["MAX_RANKS", "NAME", "supports", "torchyard_implementations"]

NAME: Final = "cpu.shared_memory"
# A test holds this against the native module.
MAX_RANKS: Final = 64


def supports(request: SharedMemoryRequest, platform: Platform) -> Verdict:
    """Say whether the native module supports the request."""
    if request.device != "cpu":
        return Verdict.no(ReasonCode.DEVICE, f"moves tensors on cpu, got {request.device}")
    if platform.system != "Linux" or find_spec("torchyard_cpu._shm") is None:
        return Verdict.no(
            ReasonCode.DEPENDENCY, f"needs Linux's memfd, futex and pidfd; got {platform.system}"
        )
    if request.ranks > MAX_RANKS:
        return Verdict.no(
            ReasonCode.SHAPE, f"expected at most {MAX_RANKS} ranks on a host, got {request.ranks}"
        )
    return Verdict.yes(f"{request.ranks} processes over one segment without a name")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the contract's one implementation."""
    return [Implementation(CONTRACT, NAME, supports, _load)]


def _load() -> Callable[[], SharedMemory]:
    from torchyard_cpu import _shm

    return lambda: _shm
