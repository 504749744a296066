"""``check``: a Metal source, parsed and type-checked by Clang."""

from __future__ import annotations

import re
from typing import Final

from torchyard import arguments
from torchyard_conformance.metal._clang import clang
from torchyard_conformance.metal._errors import CompilationError
from torchyard_conformance.metal._source._opencl import opencl

__all__ = ["check"]

_OF: Final = "metal.check"
_FILE: Final = "kernel.metal"
_SAID: Final = re.compile(rf"{re.escape(_FILE)}:(\d+):\d+: (error|warning): (.*)")
# A declaration in Clang's syntax tree: its kind, extent, place, name and type; a parameter of a
# function that Clang adds has no name. A part of a place that is as before is left out.
_DECLARED: Final = re.compile(
    r"(?:Var|ParmVar|Field)Decl 0x[0-9a-f]+ (?:prev 0x[0-9a-f]+ )?<[^>]*> \S+ "
    r"(?:(?:used|referenced|invalid) )*+([A-Za-z_]\w*) '([^']*)'"
)
_PLACE: Final = re.compile(r"(?<=[<, ])(?:line:(\d+):\d+|([^\s<>,:]+):(\d+):\d+)")
_MOST_SHOWN: Final = 10


def check(source: str) -> tuple[str, ...]:
    """Parse and type-check a Metal source by Clang, from which Apple's compiler is made.

    Clang's C++ for OpenCL has Metal's address spaces, vectors and ``half``, and takes the source
    but for a few spellings. Checked are syntax and types; address spaces, that every pointer,
    reference and variable of the program names one; overloads of Metal's functions, which are
    declared as its specification lists them; that nothing is newer than C++14; and types and
    indices of a kernel's parameters.

    What it does not show: Metal's own rules about function constants, textures and templates of
    kernels, which it refuses; versions of Metal older than 3.2; and any code that is generated.

    Args:
        source: Metal Shading Language.

    Returns:
        Clang's warnings, ``line N: ...`` each; those of unused names are left out.

    Raises:
        CompilationError: the source is not Metal; names lines.
        CompilerMissingError: there is no Clang.
        UnsupportedSourceError: it uses a part of Metal that C++ for OpenCL lacks.
    """
    source = arguments.text(_OF, "source", source)
    said, tree = clang().parse(f'#line 1 "{_FILE}"\n{opencl(source)}\n')
    errors = [f"line {line}: {text}" for line, kind, text in _SAID.findall(said) if kind == "error"]
    errors += _unplaced(tree) if not errors else []
    if not errors and "error:" in said:
        errors = [line for line in said.splitlines() if "error:" in line]
    if errors:
        shown = "\n".join(errors[:_MOST_SHOWN])
        raise CompilationError(
            f"{_OF}: source: expected what Clang {clang().version} takes:\n{shown}"
        )
    return tuple(f"line {line}: {text}" for line, _, text in _SAID.findall(said))


def _unplaced(tree: str) -> list[str]:
    """Return which declarations name no address space: Clang has a default, and Metal has none."""
    found: dict[str, None] = {}
    file, line, read = "", 0, 0
    for node in tree[max(tree.find(f"<{_FILE}:"), 0) :].splitlines():
        for same, other, at in _PLACE.findall(node.partition(" '")[0]):
            file, line = other or file, int(same or at)
        declared = _DECLARED.search(node)
        if declared is None or file != _FILE:
            continue
        read += 1
        name, type_ = declared.groups()
        if "__generic" in type_:
            found[
                f"line {line}: {name}: expected device, constant, threadgroup or thread before "
                "what it points or refers to"
            ] = None
    if not read:
        raise CompilationError(
            f"{_OF}: source: expected a kernel with parameters; Clang's syntax tree has none"
        )
    return list(found)
