"""Metal source as C++ for OpenCL, on the same lines."""

from __future__ import annotations

import re
from typing import Final

from torchyard_conformance.metal._errors import UnsupportedSourceError
from torchyard_conformance.metal._source._kernels import PLACES, Kernel, kernels, name_at
from torchyard_conformance.metal._source._tokens import Token, closing, significant, split, tokens
from torchyard_conformance.metal._source._unsupported import refuse_unsupported

__all__ = ["opencl", "program"]

_VECTOR: Final = re.compile(r"(?:packed_)?(?:u?(?:char|short|int|long)|half|bfloat|float)[234]")
_VECTOR_OF_BOOL: Final = re.compile(r"bool[234]")
_BFLOAT: Final = re.compile(r"(.+)(?:bf|BF)")
# Names of OpenCL that are none of Metal.
_KEYWORDS: Final = frozenset(
    {"generic", "global", "local", "pipe", "read_only", "read_write", "write_only"}
)
_INDEX: Final = frozenset({"ushort", "uint"})
_POSITION: Final = _INDEX | {f"{kind}{size}" for kind in _INDEX for size in (2, 3)}
_MOST_BUFFERS: Final = 31
# Place, of which there may be a vector -> its number in a dimension, by functions.h.
_OF_DIMENSION: Final = {
    "kGroupInGrid": "group_id",
    "kGroupsPerGrid": "group_count",
    "kThreadInGrid": "grid_id",
    "kThreadInGroup": "local_id",
    "kThreadsPerGrid": "grid_size",
    "kThreadsPerGroup": "local_size",
}
_NUMBER: Final = {
    "kIndexInGroup": "index_in_group()",
    "kIndexInQuadgroup": "lane() % 4u",
    "kIndexInSimdgroup": "lane()",
    "kQuadgroupInGroup": "index_in_group() / 4u",
    "kQuadgroupsPerGroup": "group_size() / 4u",
    "kSimdgroupInGroup": "simdgroup()",
    "kSimdgroupsPerGroup": "simdgroups()",
    "kThreadsPerSimdgroup": "width()",
}
_KERNEL: Final = "__attribute__((intel_reqd_sub_group_size(32))) kernel"


def opencl(source: str) -> str:
    """Return a Metal source in C++ for OpenCL, to be checked.

    Raises:
        UnsupportedSourceError: the source uses a part of Metal that this language does not have,
            or a kernel's parameter is not one that Metal has.
    """
    return "".join(_texts(source)[1])


def program(source: str) -> tuple[str, dict[str, Kernel]]:
    """Return a Metal source in C++ for OpenCL, to be run, and its kernels.

    A kernel's positions are no parameters there: they are computed where it begins.

    Raises:
        UnsupportedSourceError: as of ``opencl``.
    """
    items, texts = _texts(source)
    found = kernels(items)
    for at, item in enumerate(items):
        if item.kind == "word" and item.text == "kernel":
            _place_positions(items, texts, at, found[items[name_at(items, at)].text])
    return "".join(texts), found


def _texts(source: str) -> tuple[list[Token], list[str]]:
    """Return the tokens of a source, and the text of each in C++ for OpenCL."""
    items = tokens(source)
    refuse_unsupported(items)
    for kernel in kernels(items).values():
        _check_parameters(kernel)
    return items, [_rewritten(items, at) for at in range(len(items))]


def _place_positions(items: list[Token], texts: list[str], at: int, kernel: Kernel) -> None:
    """Move a kernel's positions from its parameters to where it begins."""
    opened = significant(items, name_at(items, at))
    closed = closing(items, opened)
    kept, places, start = [], [], opened + 1
    for part, parameter in zip(split(items[opened + 1 : closed]), kernel.parameters, strict=True):
        text = " ".join("".join(texts[start : start + len(part)]).split())
        start += len(part) + 1
        if parameter.attribute not in PLACES:
            kept.append(text)
            continue
        type_ = parameter.type.removeprefix("const ")
        value = _position(PLACES[parameter.attribute], type_)
        places.append(f"const {type_} {parameter.name} = {value};")
    lines = "\n" * "".join(texts[opened:closed]).count("\n")
    texts[at] = _KERNEL
    texts[opened : closed + 1] = [f"({', '.join(kept)}){lines}", *[""] * (closed - opened)]
    texts[significant(items, closed)] = " ".join(["{", *places])


def _position(place: str, type_: str) -> str:
    if place in _NUMBER:
        return f"{type_}(::torchyard_opencl::{_NUMBER[place]})"
    size = int(type_[-1]) if type_[-1].isdigit() else 1
    scalar = type_.rstrip("23")
    parts = (
        f"{scalar}(::torchyard_opencl::{_OF_DIMENSION[place]}({dimension}))"
        for dimension in range(size)
    )
    return f"({type_})({', '.join(parts)})"


def _check_parameters(kernel: Kernel) -> None:
    """Refuse what no Metal compiler takes: attributes are not read by Clang."""
    taken: dict[tuple[str, int], str] = {}
    if "<" in kernel.function:
        raise UnsupportedSourceError(
            f"line {kernel.line}: {kernel.function}: C++ for OpenCL has no kernels that are "
            "templates; write the function without 'kernel', and kernels that call it"
        )
    for part in kernel.parameters:
        if part.attribute in PLACES:
            place = PLACES[part.attribute]
            known = _POSITION if place in _OF_DIMENSION else _INDEX
            if part.type.removeprefix("const ") not in known:
                raise UnsupportedSourceError(
                    f"line {kernel.line}: {kernel.name}: {part.name}: expected one of "
                    f"{', '.join(sorted(known))} for [[{part.attribute}]], got {part.type}"
                )
            continue
        if not 0 <= part.index < _MOST_BUFFERS:
            raise UnsupportedSourceError(
                f"line {kernel.line}: {kernel.name}: {part.name}: expected [[{part.attribute}(n)]] "
                f"with n from 0 to {_MOST_BUFFERS - 1}, got {part.index}"
            )
        other = taken.setdefault((part.attribute, part.index), part.name)
        if other != part.name:
            raise UnsupportedSourceError(
                f"line {kernel.line}: {kernel.name}: {part.name}: expected an index of its own, "
                f"got [[{part.attribute}({part.index})]] of {other}"
            )


def _rewritten(items: list[Token], at: int) -> str:
    item = items[at]
    if item.kind == "include":
        return ""
    if item.kind == "number" and (match := _BFLOAT.fullmatch(item.text)):
        return f"bfloat({match[1]}f)"
    if item.kind != "word":
        return item.text
    if _VECTOR_OF_BOOL.fullmatch(item.text):
        raise UnsupportedSourceError(
            f"line {item.line}: {item.text}: C++ for OpenCL has no vectors of bool"
        )
    if item.text in _KEYWORDS:
        return f"{item.text}_of_metal"
    following = significant(items, at)
    if _VECTOR.fullmatch(item.text) and following >= 0 and items[following].text == "(":
        return f"({item.text})"
    return item.text
