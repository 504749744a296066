"""The kernels of a source, with what each parameter is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torchyard_conformance.metal._errors import UnsupportedSourceError
from torchyard_conformance.metal._source._tokens import Token, closing, significant, split

__all__ = ["PLACES", "SPACES", "Kernel", "Parameter", "kernels", "name_at"]

SPACES: Final = frozenset({"constant", "device", "thread", "threadgroup"})
# Attribute -> Place of interface.h.
PLACES: Final = {
    "dispatch_quadgroups_per_threadgroup": "kQuadgroupsPerGroup",
    "dispatch_simdgroups_per_threadgroup": "kSimdgroupsPerGroup",
    "dispatch_threads_per_threadgroup": "kThreadsPerGroup",
    "quadgroup_index_in_threadgroup": "kQuadgroupInGroup",
    "quadgroups_per_threadgroup": "kQuadgroupsPerGroup",
    "simdgroup_index_in_threadgroup": "kSimdgroupInGroup",
    "simdgroups_per_threadgroup": "kSimdgroupsPerGroup",
    "thread_execution_width": "kThreadsPerSimdgroup",
    "thread_index_in_quadgroup": "kIndexInQuadgroup",
    "thread_index_in_simdgroup": "kIndexInSimdgroup",
    "thread_index_in_threadgroup": "kIndexInGroup",
    "thread_position_in_grid": "kThreadInGrid",
    "thread_position_in_threadgroup": "kThreadInGroup",
    "threadgroup_position_in_grid": "kGroupInGrid",
    "threadgroups_per_grid": "kGroupsPerGrid",
    "threads_per_grid": "kThreadsPerGrid",
    "threads_per_simdgroup": "kThreadsPerSimdgroup",
    "threads_per_threadgroup": "kThreadsPerGroup",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel's parameter.

    Attributes:
        name: its name.
        type: its type in C++, without address spaces.
        attribute: ``buffer``, ``threadgroup`` or a name of ``PLACES``.
        index: of the buffer or the threadgroup memory.
        space: ``device``, ``constant`` or ``threadgroup``; empty for a position.
        reads_only: whether it is const.
    """

    name: str
    type: str
    attribute: str
    index: int = -1
    space: str = ""
    reads_only: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: the name by which it is launched, the C++ function, its parameters, its line."""

    name: str
    function: str
    parameters: tuple[Parameter, ...]
    line: int


def kernels(items: list[Token]) -> dict[str, Kernel]:
    """Return a source's kernels by name.

    A template is none; its explicit instantiations are, under the name that ``host_name`` gives.

    Raises:
        UnsupportedSourceError: a kernel's form or a parameter's is not one that can be launched.
    """
    found: dict[str, Kernel] = {}
    templates: dict[str, tuple[Parameter, ...]] = {}
    for at, item in enumerate(items):
        if item.kind != "word" or item.text != "kernel":
            continue
        head = _head(items, at)
        named = name_at(items, at)
        name, opened = items[named].text, significant(items, named)
        function = name
        if items[opened].text == "<":
            end = opened
            while items[end].text != ">":
                end += 1
            function += "".join(part.text for part in items[opened : end + 1])
            opened = significant(items, end)
        if items[opened].text != "(":
            raise UnsupportedSourceError(
                f"line {item.line}: expected a kernel as 'kernel void name(parameters)', or an "
                "instantiation with its parameters written out"
            )
        given = split(items[opened + 1 : closing(items, opened)])
        is_template = "<" in {token.text for token in head if token.kind == "mark"}
        parameters = tuple(
            _parameter(part, templates.get(name, ()), place) for place, part in enumerate(given)
        )
        if is_template:
            templates[name] = parameters
            continue
        found[_host_name(head) or function] = Kernel(
            _host_name(head) or function, function, parameters, item.line
        )
    return found


def _head(items: list[Token], at: int) -> list[Token]:
    """Return what is before ``kernel`` in its declaration."""
    start = at
    while start > 0 and items[start - 1].text not in (";", "}", "{"):
        start -= 1
    head = [item for item in items[start:at] if item.kind != "blank"]
    return head if any(item.text == "template" for item in head) else []


def _host_name(head: list[Token]) -> str:
    for place, item in enumerate(head):
        if item.text == "host_name":
            return "".join(part.text.strip('"') for part in head[place + 2 : place + 3])
    return ""


def name_at(items: list[Token], at: int) -> int:
    """Return the place of a kernel's name, of which ``kernel`` is at a place."""
    place = significant(items, at)
    while items[place].text == "[[" or items[place].text == "]]" or items[place].text == "void":
        if items[place].text == "[[":
            place = closing(items, place)
        place = significant(items, place)
    return place


def _parameter(part: list[Token], template: tuple[Parameter, ...], place: int) -> Parameter:
    words = [item for item in part if item.kind != "blank"]
    line = words[0].line
    opened = next((at for at, item in enumerate(words) if item.text == "[["), len(words))
    attribute = words[opened + 1].text if opened < len(words) else ""
    number = next((item.text for item in words[opened:] if item.kind == "number"), "-1")
    declared = words[:opened]
    if not attribute and place < len(template):
        # Of an instantiation that does not repeat them.
        attribute, number = template[place].attribute, str(template[place].index)
    name = declared[-1].text
    if declared[-1].kind != "word" or len(declared) < 2:
        raise UnsupportedSourceError(
            f"line {line}: expected a parameter with a name behind its type, got "
            f"{' '.join(item.text for item in declared)!r}"
        )
    texts = [item.text for item in declared[:-1]]
    space = next((text for text in texts if text in SPACES), "")
    reads_only = "const" in texts or space == "constant"
    kind = " ".join(text for text in texts if text not in SPACES)
    if space == "constant" and "const" not in texts:
        kind = f"const {kind}"
    if attribute in PLACES:
        return Parameter(name, kind, attribute)
    if attribute == "buffer" and space in ("device", "constant"):
        return Parameter(name, kind, attribute, int(number), space, reads_only)
    if attribute == "threadgroup" and space == "threadgroup":
        return Parameter(name, kind, attribute, int(number), space)
    raise UnsupportedSourceError(
        f"line {line}: parameter {name}: expected [[buffer(n)]] of device or constant memory, "
        f"[[threadgroup(n)]] of threadgroup memory, or a position of a thread, got "
        f"{space or 'no address space'} with [[{attribute or 'no attribute'}]]; textures, function "
        "constants and stage inputs are not supported"
    )
