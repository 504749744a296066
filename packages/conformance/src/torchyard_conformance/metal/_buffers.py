"""Buffers of a launch: where they are in memory, which of them share it, what came of them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_conformance.metal._source._kernels import Kernel, Parameter

__all__ = ["Empty", "Place", "Region", "buffers_of", "regions_of"]

_OF = "metal.run"


@dataclass(frozen=True, slots=True)
class Empty:
    """A buffer that holds nothing before the launch: to read it before a write is a finding.

    Attributes:
        shape: of the tensor that it becomes.
        dtype: of its elements.
        stride: in elements; None: contiguous. What is between elements belongs to no one.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer in a region.

    Attributes:
        parameter: the kernel's.
        offset: bytes from the region's start.
        size: bytes from its first element to the end of its last.
        like: a tensor of its shape, strides and dtype; None for bytes.
    """

    parameter: Parameter
    offset: int
    size: int
    like: Tensor | None


@dataclass(slots=True)
class Region:
    """Memory of one buffer, or of several that overlap.

    Attributes:
        content: its bytes before the launch.
        skew: bytes by which its address misses a multiple of 64.
        initialised: whether it holds values before the launch.
        valid: a byte for each that an element has; None: all have.
        places: its buffers.
    """

    content: bytes
    skew: int = 0
    initialised: bool = True
    valid: bytes | None = None
    places: list[Place] = field(default_factory=list)


def buffers_of(kernel: Kernel, given: object) -> dict[int, Any]:
    """Return a launch's buffers by index, checked: there is one for every parameter.

    Args:
        kernel: the kernel.
        given: a sequence by index, or a mapping from indices or parameters' names.
    """
    wanted = {part.index: part for part in kernel.parameters if part.attribute == "buffer"}
    index_of = {part.name: index for index, part in wanted.items()}
    found: dict[int, Any] = {}
    if isinstance(given, Mapping):
        for key, value in given.items():
            index = index_of.get(key, key)
            if index not in wanted:
                raise arguments.wrong_value(
                    _OF, "buffers", f"names or indices of {sorted(index_of)}", repr(key)
                )
            found[index] = value
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        found = dict(enumerate(given))
    else:
        raise arguments.wrong_kind(_OF, "buffers", "a mapping or a sequence", given)
    missing = [part.name for index, part in wanted.items() if index not in found]
    if missing:
        raise arguments.wrong_value(
            _OF, "buffers", f"a buffer for each of {sorted(index_of)}", f"none for {missing}"
        )
    for index, value in found.items():
        if index not in wanted:
            raise arguments.wrong_value(
                _OF, "buffers", f"buffers of the indices {sorted(wanted)}", str(index)
            )
        _check(wanted[index], value)
    return found


def _check(parameter: Parameter, value: object) -> None:
    name = f"buffers[{parameter.name!r}]"
    if isinstance(value, Tensor):
        if value.device.type != "cpu" or value.layout != torch.strided or value.is_complex():
            raise arguments.wrong_value(
                _OF, name, "a dense tensor of real numbers on the CPU", str(value.device)
            )
        if not value.numel():
            raise arguments.wrong_value(_OF, name, "a tensor with elements", f"{value.shape}")
    elif isinstance(value, Empty):
        if parameter.reads_only:
            raise arguments.wrong_value(
                _OF, name, "values, since the kernel only reads it", "Empty"
            )
    elif not isinstance(value, bytes | ctypes.Structure):
        raise arguments.wrong_kind(_OF, name, "a tensor, Empty, bytes or a ctypes structure", value)


def regions_of(kernel: Kernel, given: dict[int, Any]) -> list[Region]:
    """Return the memory of a launch. Tensors that overlap share a region, as they share memory."""
    parameters = {part.index: part for part in kernel.parameters if part.attribute == "buffer"}
    regions = []
    spans: list[tuple[int, int, Parameter, Tensor]] = []
    for index, value in sorted(given.items()):
        parameter = parameters[index]
        if isinstance(value, Tensor):
            value = value.detach()
            start = value.data_ptr()
            spans.append((start, start + _span(value), parameter, value))
        elif isinstance(value, Empty):
            like = (
                torch.empty_strided(value.shape, value.stride, dtype=value.dtype)
                if value.stride is not None
                else torch.empty(value.shape, dtype=value.dtype)
            )
            size = _span(like)
            region = Region(b"\xff" * size, initialised=False)
            region.places.append(Place(parameter, 0, size, like))
            regions.append(_with_mask(region))
        else:
            content = bytes(value)
            regions.append(Region(content, places=[Place(parameter, 0, len(content), None)]))
    for group in _overlapping(spans):
        start, end = group[0][0], max(item[1] for item in group)
        region = Region(ctypes.string_at(start, end - start), skew=start % 64)
        for first, last, parameter, value in group:
            region.places.append(Place(parameter, first - start, last - first, value))
        regions.append(_with_mask(region))
    return regions


def _span(tensor: Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    steps = (
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (sum(steps) + 1) * tensor.element_size()


def _overlapping(
    spans: list[tuple[int, int, Parameter, Tensor]],
) -> list[list[tuple[int, int, Parameter, Tensor]]]:
    groups: list[list[tuple[int, int, Parameter, Tensor]]] = []
    end = -1
    for span in sorted(spans, key=lambda item: item[:2]):
        if groups and span[0] < end:
            groups[-1].append(span)
            end = max(end, span[1])
        else:
            groups.append([span])
            end = span[1]
    return groups


def _with_mask(region: Region) -> Region:
    mask = torch.zeros(len(region.content), dtype=torch.uint8)
    for place in region.places:
        assert place.like is not None
        width = place.like.element_size()
        strides = tuple(stride * width for stride in place.like.stride())
        mask.as_strided((*place.like.shape, width), (*strides, 1), place.offset).fill_(1)
    if not bool(mask.all()):
        region.valid = bytes(mask.tolist())
    return region
