"""Metal source as C++ for the shim, on the same lines."""

from __future__ import annotations

import re
from typing import Final

from torchyard_conformance.metal._errors import UnsupportedSourceError
from torchyard_conformance.metal._source._kernels import PLACES, Kernel, kernels
from torchyard_conformance.metal._source._tokens import Token, closing, significant, split, tokens
from torchyard_conformance.metal._source._unsupported import refuse_unsupported

__all__ = ["FILE", "translate"]

# How the source is called in the compiler's messages and tables of lines.
FILE: Final = "kernel.metal"
_SWIZZLE: Final = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_PART: Final = {name: place for names in ("xyzw", "rgba") for place, name in enumerate(names)}


def translate(source: str) -> tuple[str, dict[str, Kernel]]:
    """Return the C++ of a Metal source, and its kernels.

    Raises:
        UnsupportedSourceError: the source uses a part of Metal that is not supported here.
    """
    items = tokens(source)
    refuse_unsupported(items)
    found = kernels(items)
    body = "".join(_rewritten(items))
    launches = "\n".join(_launch(number, one) for number, one in enumerate(found.values()))
    table = "".join(
        f'    {{"{one.name}", call_{number}, parameters_{number}, '
        f"{sum(part.index >= 0 for part in one.parameters)}}},\n"
        for number, one in enumerate(found.values())
    )
    text = (
        f'#include "metal.h"\n#line 1 "{FILE}"\n{body}\n#line 1 "launches"\n'
        f"namespace {{\n{launches}\n}}\n"
        f"extern const torchyard_metal::Kernel torchyard_metal_kernels[] = {{\n{table}}};\n"
        f"extern const unsigned torchyard_metal_kernel_count = {len(found)};\n"
    )
    return text, found


def _rewritten(items: list[Token]) -> list[str]:
    """Return the text of each token in C++."""
    texts = [item.text for item in items]
    members = _own_members(items)
    variables, done = 0, 0
    for at, item in enumerate(items):
        if at < done:
            continue
        if item.kind == "include":
            if not re.search(r"<metal_\w+>", item.text):
                raise UnsupportedSourceError(
                    f"line {item.line}: {item.text.strip()}: only <metal_...> is here; put what "
                    "the file holds into the source"
                )
            texts[at] = ""
        elif item.kind == "number":
            texts[at] = _number(item.text)
        elif item.text == "[[":
            end = closing(items, at)
            if items[end].text == "]]":
                done = end + 1
                for place in range(at, done):
                    texts[place] = "\n" * items[place].text.count("\n")
        elif item.kind == "word":
            if item.text == "threadgroup" and _is_variable(items, at):
                end = _statement_end(items, at)
                declared = _variables(items[at + 1 : end], variables, item.line)
                variables += len(declared)
                blank = "\n" * "".join(part.text for part in items[at:end]).count("\n")
                done = end
                texts[at:end] = ["; ".join(declared) + blank, *[""] * (end - at - 1)]
            elif item.text in ("kernel", "device", "thread", "threadgroup"):
                texts[at] = ""
            elif item.text == "constant":
                texts[at] = "" if _is_const_already(items, at) else "const"
            elif _SWIZZLE.fullmatch(item.text) and item.text not in members:
                texts[at] = _swizzle(items, at)
    return texts


def _own_members(items: list[Token]) -> set[str]:
    """Return the names that look like swizzles and are declared in the source."""
    return {
        item.text
        for at, item in enumerate(items)
        if _SWIZZLE.fullmatch(item.text)
        and items[significant(items, at, -1)].text not in (".", "->")
    }


def _number(text: str) -> str:
    if text[:2] in ("0x", "0X"):
        return text
    match = re.fullmatch(r"([\d'.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)", text)
    if match is None:
        return text
    digits, suffix = match.groups()
    is_float = "." in digits or "e" in digits.lower()
    if suffix in ("h", "H"):
        return f"{digits if is_float else digits + '.0'}_half"
    if suffix in ("bf", "BF"):
        return f"{digits if is_float else digits + '.0'}_bfloat"
    # Metal has no double: a literal without a suffix is a float.
    return f"{digits}f" if is_float and not suffix else text


def _is_variable(items: list[Token], at: int) -> bool:
    """Return whether ``threadgroup`` begins the declaration of memory, not of a pointer to it."""
    before = significant(items, at, -1)
    if before < 0 or items[before].text not in (";", "{", "}", ")"):
        return False
    declared = items[at + 1 : _statement_end(items, at)]
    depth = 0
    for item in declared:
        depth += {"<": 1, "[": 1, ">": -1, "]": -1}.get(item.text, 0)
        if depth == 0 and item.text in ("*", "&", "=", "("):
            return False
    return True


def _statement_end(items: list[Token], at: int) -> int:
    while at < len(items) and items[at].text != ";":
        at += 1
    return at


def _variables(declared: list[Token], number: int, line: int) -> list[str]:
    """Return statements that bind a declaration's names to threadgroup memory."""
    statements: list[str] = []
    base = ""
    for part in split(declared):
        dims_at = next((at for at, item in enumerate(part) if item.text == "["), len(part))
        name_at = significant(part, dims_at, -1)
        name = part[name_at].text
        base = base or "".join(item.text for item in part[:name_at]).strip()
        dims = "".join(_number(item.text) for item in part[dims_at:]).strip()
        kind = f"{name}_torchyard"
        element = f"torchyard_metal::element_t<{kind}>"
        statements.append(
            f"typedef {base} {kind} {dims}; auto& {name} = *static_cast<{kind}*>("
            f'torchyard_metal::group_variable({number + len(statements)}, "{name}", '
            f"sizeof({kind}), sizeof({element}), torchyard_metal::scalar_v<{element}>, {line}))"
        )
    return statements


def _is_const_already(items: list[Token], at: int) -> bool:
    around = (significant(items, at, -1), significant(items, at))
    return any(place >= 0 and items[place].text in ("const", "constexpr") for place in around)


def _swizzle(items: list[Token], at: int) -> str:
    text = items[at].text
    parts = ", ".join(str(_PART[name]) for name in text)
    following = significant(items, at)
    assigned = following >= 0 and items[following].text == "="
    return f"template {'assigned' if assigned else 'swizzle'}<{parts}>()"


def _launch(number: int, kernel: Kernel) -> str:
    """Return the function that calls a kernel with its arguments, and the table of parameters."""
    arguments, rows = [], []
    for part in kernel.parameters:
        if part.attribute in PLACES:
            place = f"torchyard_metal::Place::{PLACES[part.attribute]}"
            arguments.append(f"torchyard_metal::Positions<{part.type}>::of({place})")
            continue
        memory = "buffer" if part.attribute == "buffer" else "group_memory"
        arguments.append(
            f"torchyard_metal::Argument<{part.type}>::of(torchyard_metal::{memory}({part.index}))"
        )
        kind = f"torchyard_metal::pointee_t<{part.type}>"
        rows.append(
            f"    {{\"{part.name}\", {part.index}, '{part.space[0]}', "
            f"{str(part.reads_only).lower()}, sizeof({kind}), "
            f"torchyard_metal::scalar_v<{kind}>}},\n"
        )
    # An array has at least one element.
    rows = rows or ["    {},\n"]
    return (
        f"TORCHYARD_UNCHECKED void call_{number}() {{\n  {kernel.function}("
        f"{', '.join(arguments)});\n}}\n"
        f"const torchyard_metal::Parameter parameters_{number}[] = {{\n{''.join(rows)}}};"
    )
