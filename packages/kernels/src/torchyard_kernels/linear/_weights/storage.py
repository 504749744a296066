"""The storage of a packed weight: the one owner of its numbers."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.linear._formats.table import parse_format
from torchyard_kernels.linear._weights.packed_weight import PackedWeight

__all__ = ["Joint", "Part", "WeightStorage", "join"]

_ROUNDED = ("int8", "int4")
# Held while a weight's memory is written or moved.
_MEMORY_LOCK = threading.Lock()


class Joint:
    """Weights of layers with one input, whose rows follow one another in one packed weight.

    Attributes:
        whole: all rows.
        sizes: rows of each weight.
        parts: each weight, over the memory of the whole.
        writes: how often a part was written.
        wasted: how often a product of all rows was computed and not all parts were used.
    """

    def __init__(self, whole: PackedWeight, sizes: tuple[int, ...]) -> None:
        self.whole = whole
        self.sizes = sizes
        self.writes = 0
        self.wasted = 0
        first, parts = 0, []
        for index, size in enumerate(sizes):
            parts.append(Part(_rows(whole, first, size), self, index))
            first += size
        self.parts = tuple(parts)

    @staticmethod
    def fits(sizes: tuple[int, ...], panel: int) -> bool:
        """Return whether weights of these rows can be parts of one: each fills its panels."""
        return all(size % panel == 0 for size in sizes)

    def __deepcopy__(self, memo: dict[int, Any]) -> Joint:
        return Joint(copy.deepcopy(self.whole, memo), self.sizes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Joint, (self.whole, self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A packed weight, and the joint weight that it is a part of.

    Attributes:
        packed: the weight.
        joint: the joint weight that it shares memory with; None where there is none.
        index: its index among the joint's parts.
    """

    packed: PackedWeight
    joint: Joint | None = None
    index: int = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Part:
        if self.joint is None:
            return Part(copy.deepcopy(self.packed, memo))
        found: Part = copy.deepcopy(self.joint, memo).parts[self.index]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        if self.joint is None:
            return Part, (self.packed,)
        return _part_of, (self.joint, self.index)


class WeightStorage:
    """The storage that all aliases of a weight share: packed, or a plain tensor in its place.

    Attributes:
        part: the packed form; None where ``plain`` is the weight.
        plain: a tensor that was assigned in its place, through ``.data``.
        writes: how often it was written.
        origin: the same object for all that were converted from one.
    """

    __slots__ = ("origin", "part", "plain", "writes")

    def __init__(self, part: Part | None, plain: Tensor | None = None) -> None:
        self.part = part
        self.plain = plain
        self.writes = 0
        self.origin: object = object()

    @property
    def device(self) -> torch.device:
        """The weight's device."""
        if self.part is None:
            assert self.plain is not None
            return self.plain.device
        return self.part.packed.tensors[0].device

    @property
    def is_rounded(self) -> bool:
        """Whether a write would be rounded to a few bits."""
        return self.part is not None and self.part.packed.format in _ROUNDED

    def dense(self) -> Tensor:
        """Return [N, K]: the plain tensor itself, or the packed weight, unpacked."""
        if self.part is None:
            assert self.plain is not None
            return self.plain
        return self.part.packed.unpack()

    def write(self, dense: Tensor) -> None:
        """Pack other numbers [N, K] into the same memory."""
        with _MEMORY_LOCK, torch.no_grad(), torch.inference_mode(False):
            assert self.part is not None
            packed = self.part.packed
            layout = parse_format(packed.format)
            tensors, _ = layout.pack(dense.to(packed.dtype), packed.options)
            for own, new in zip(packed.tensors, tensors, strict=True):
                own.copy_(new)
        self.writes += 1
        # Inside of __torch_dispatch__ version counters do not change.
        if self.part.joint is not None:
            self.part.joint.writes += 1

    def converted(self, dtype: torch.dtype, device: torch.device) -> WeightStorage:
        """Return a copy on a device, in a dtype that can be packed."""
        assert self.part is not None
        with torch.no_grad(), torch.inference_mode(False):
            made = WeightStorage(Part(self.part.packed.converted(dtype, device)))
        made.origin, made.writes = self.origin, self.writes
        return made


def join(storages: tuple[WeightStorage, ...]) -> Joint | None:
    """Return the joint weight of several weights; move them into one if possible, else None.

    Numbers do not change. A thread that computes meanwhile reads the old memory or the new.
    """
    joint = _joint_of(storages)
    if joint is not None or any(storage.part is None for storage in storages):
        return joint
    with _MEMORY_LOCK, torch.no_grad(), torch.inference_mode(False):
        # Another thread may have joined them first.
        if (joint := _joint_of(storages)) is not None:
            return joint
        weights = [storage.part.packed for storage in storages if storage.part is not None]
        alike = {(w.format, w.dtype, w.shape[1], tuple(w.options.items())) for w in weights}
        devices = {tensor.device for weight in weights for tensor in weight.tensors}
        sizes = tuple(weight.shape[0] for weight in weights)
        panel = weights[0].tensors[0].shape[2]
        if len(alike) != 1 or len(devices) != 1 or not Joint.fits(sizes, panel):
            return None
        joint = Joint(PackedWeight.stacked(weights), sizes)
        for storage, part in zip(storages, joint.parts, strict=True):
            storage.part = part
    return joint


def _joint_of(storages: tuple[WeightStorage, ...]) -> Joint | None:
    first = storages[0].part
    joint = None if first is None else first.joint
    if joint is None or len(joint.parts) != len(storages):
        return None
    # Decoding runs this for every layer and token: a loop without allocations.
    for storage, part in zip(storages, joint.parts, strict=True):
        if storage.part is not part:
            return None
    return joint


def _part_of(joint: Joint, index: int) -> Part:
    return joint.parts[index]


def _rows(packed: PackedWeight, first: int, count: int) -> PackedWeight:
    """Return rows of a packed weight as a packed weight over the same memory."""
    panel = packed.tensors[0].shape[2]
    part = slice(first // panel, (first + count) // panel)
    spec = packed.spec_text.replace(f" {packed.shape[0]}x", f" {count}x", 1)
    state = {name: packed.get_buffer(name)[part] for name in packed.names}
    state["spec"] = torch.tensor(list(spec.encode()), dtype=torch.uint8)
    return PackedWeight.from_state(state)
