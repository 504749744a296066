"""``CompressedTier``: a tier whose entries take a byte for each number."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_cache._reuse._tiers._packing import pack, unpack
from torchyard_cache._reuse._tiers._tier import Tier

__all__ = ["CompressedTier"]

# The greatest number of each form, to which the greatest of a vector is scaled.
_GREATEST: Final[Mapping[str, tuple[torch.dtype, float]]] = MappingProxyType(
    {"int8": (torch.int8, 127.0), "fp8": (torch.float8_e4m3fn, 448.0)}
)
_CPU: Final = torch.device("cpu")
# What a tensor is stored as: its numbers, the factor of each vector, and its dtype.
_NUMBERS, _SCALES, _DTYPE = ".numbers", ".scales", ".dtype"


class CompressedTier:
    """Store the entries of another tier with a byte for each number: ``int8`` or ``fp8`` (e4m3).

    Every vector, that is the last dimension of keys, values and states, has a float32 factor of its
    own. Tensors of integers, and those that hold what is not finite, are stored as they are. What
    is found is near what was computed, not equal: tokens may differ where two are near one another.
    :attr:`error` is how far, and ``reuse(..., verify=)`` tries a share of what is found.

    Args:
        tier: such as :class:`DiskTier`. Its other entries, exact or of the other form, are left
            alone: their keys differ.
        form: ``"int8"`` or ``"fp8"``.

    Raises:
        TypeError, ValueError: an argument does not fit.
    """

    def __init__(self, tier: Tier, form: Literal["int8", "fp8"]) -> None:
        for method in ("get", "put", "delete"):
            if not callable(getattr(tier, method, None)):
                raise arguments.wrong_kind(
                    "CompressedTier", "tier", "a tier, such as DiskTier or ValkeyTier", tier
                )
        self._form = arguments.choice("CompressedTier", "form", form, tuple(_GREATEST))
        self._tier = tier
        self._lock = threading.Lock()
        self._error = 0.0
        self._before = self._after = 0

    @property
    def name(self) -> str:
        """The tier's, with the form: ``disk-int8``."""
        return f"{self._tier.name}-{self._form}"

    @property
    def errors(self) -> int:
        """How often the tier failed."""
        return self._tier.errors

    @property
    def error(self) -> float:
        """The greatest error of a tensor that was put, as a share of the tensor's norm."""
        return self._error

    @property
    def share(self) -> float:
        """Bytes that were put, as a share of what they would be without compression."""
        return self._after / self._before if self._before else 1.0

    def get(self, key: str) -> bytes | None:
        """Return an entry with the dtypes that it was put with; None where there is none."""
        data = self._tier.get(self._named(key))
        if data is None:
            return None
        stored = unpack(data, _CPU)
        # What is damaged is what the caller finds damaged, and has this tier delete.
        return data if stored is None else pack(_restored(stored))

    def put(self, key: str, data: bytes) -> None:
        """Compress an entry, and give it to the tier."""
        tensors = unpack(data, _CPU)
        if tensors is None:
            return
        stored: dict[str, Tensor] = {}
        worst = 0.0
        for name, tensor in tensors.items():
            if not _compressible(tensor):
                stored[name] = tensor
                continue
            parts = _compressed(name, tensor, self._form)
            stored |= parts
            worst = max(worst, _distance(_restored(parts)[name], tensor))
        small = pack(stored)
        with self._lock:
            self._error = max(self._error, worst)
            self._before += len(data)
            self._after += len(small)
        self._tier.put(self._named(key), small)

    def delete(self, key: str) -> None:
        """Forget an entry."""
        self._tier.delete(self._named(key))

    def _named(self, key: str) -> str:
        return f"{key}-{self._form}"


def _compressible(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    return bool(tensor.float().isfinite().all())


def _compressed(name: str, tensor: Tensor, form: str) -> dict[str, Tensor]:
    dtype, greatest = _GREATEST[form]
    wide = tensor.float()
    scales = wide.abs().amax(-1, keepdim=True) / greatest
    # A vector of zeros, and one whose numbers are too small for a factor in float32.
    scales[scales == 0] = 1.0
    scaled = (wide / scales).clamp(-greatest, greatest)
    numbers = (scaled.round() if dtype == torch.int8 else scaled).to(dtype)
    return {
        name + _NUMBERS: numbers,
        name + _SCALES: scales,
        name + _DTYPE: torch.empty(0, dtype=tensor.dtype),
    }


def _restored(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for name, tensor in stored.items():
        if name.endswith((_SCALES, _DTYPE)):
            continue
        base = name.removesuffix(_NUMBERS)
        scales, dtype = stored.get(base + _SCALES), stored.get(base + _DTYPE)
        if base == name or scales is None or dtype is None:
            found[name] = tensor
        else:
            found[base] = (tensor.float() * scales).to(dtype.dtype)
    return found


def _distance(got: Tensor, expected: Tensor) -> float:
    norm = float(expected.double().norm())
    return float((got.double() - expected.double()).norm()) / norm if norm else 0.0
