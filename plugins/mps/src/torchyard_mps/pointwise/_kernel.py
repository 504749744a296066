"""The source of a map: a kernel that computes several groups, each with buffers of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from torchyard_kernels.pointwise.contract import PointwiseRequest
from torchyard_mps._launch import metal_text
from torchyard_mps.lowering import TYPES, header, type_of_dtype
from torchyard_mps.pointwise._program import MapProgram, program_of

__all__ = ["MapShape", "map_source"]

_READS: Final = {
    bool: "row[kNumbers + {place}] != 0",
    int: "row[kNumbers + {place}]",
    float: "float_of(row[kNumbers + {place}])",
}


@dataclass(frozen=True, slots=True)
class MapShape:
    """What a map is compiled for, but for its program.

    Attributes:
        operands: dtype names of a group's tensors: inputs, then elements of captured tensors, then
            those that results are written to and no input is.
        written: of each result the place among operands.
        shared: places of the operands that all groups have in common.
        slots: groups of a launch.
        dimensions: in which it walks them.
        width: of a row of the table.
        layouts: of each program where the table has its captured tensors' sizes and strides.
    """

    operands: tuple[str, ...]
    written: tuple[int, ...]
    shared: tuple[int, ...]
    slots: int
    dimensions: int
    width: int
    layouts: tuple[int, ...]

    def buffers(self) -> list[tuple[int, int]]:
        """Return (operand, slot) of each buffer, in order; of shared operands slot 0 alone."""
        own = [number for number in range(len(self.operands)) if number not in self.shared]
        listed = [(number, slot) for slot in range(self.slots) for number in own]
        return [*listed, *((number, 0) for number in self.shared)]


def map_source(request: PointwiseRequest, shape: MapShape) -> str:
    """Return the kernel ``pointwise_map`` of a request's program."""
    # What a kernel does not depend on.
    return _source(replace(request, groups=1, out=()), shape)


@lru_cache(maxsize=1024)
def _source(request: PointwiseRequest, shape: MapShape) -> str:
    program = program_of(request)
    defined = {
        "SLOTS": shape.slots,
        "DIMENSIONS": shape.dimensions,
        "OPERANDS": len(shape.operands),
        "WIDTH": shape.width,
    }
    lines = [f"#define {name} {value}" for name, value in defined.items()]
    return "\n".join(
        [
            header(),
            *(one.source for one in program.lowered),
            *lines,
            metal_text("pointwise"),
            _element_text(program, shape),
            _kernel_text(program, shape),
        ]
    )


def _kind(shape: MapShape, number: int) -> str:
    const = "" if number in shape.written else "const "
    return f"device {const}{TYPES[shape.operands[number]]}*"


def _element_text(program: MapProgram, shape: MapShape) -> str:
    """Return the function that computes one element of a group."""
    count = len(shape.operands)
    parameters = [f"{_kind(shape, number)} t{number}" for number in range(count)]
    parameters += [f"device const {kind}* c{number}" for number, kind in program.looked_up]
    common = "constant long* table, constant long* row, long at"
    lines = [
        f"inline void compute({common}, {', '.join(parameters)}) {{",
        "const Indices indices = indices_of(row, at);",
    ]
    lines += [
        f"const long p{number} = place_of(row, {number}, indices);" for number in range(count)
    ]
    operand = place = 0
    for number, item in enumerate(program.inputs):
        if isinstance(item.dtype, type):
            lines.append(f"const auto v{number} = {_READS[item.dtype].format(place=place)};")
            place += 1
        else:
            kind = type_of_dtype(item.dtype)
            lines.append(f"const {kind} v{number} = {kind}(t{operand}[p{operand}]);")
            operand += 1
    values = [f"v{number}" for number in range(len(program.inputs))]
    # Every result before any is written: to an input, perhaps.
    for number, (one, layout) in enumerate(zip(program.lowered, shape.layouts, strict=True)):
        given = [*values, *(f"c{tensor}" for tensor, _, _ in one.tensors), f"table + {layout}"]
        lines.append(f"const auto r{number} = {one.name}({', '.join(given)});")
    for number, written in enumerate(shape.written):
        kind = TYPES[shape.operands[written]]
        lines.append(f"t{written}[p{written}] = {kind}(r{number});")
    return "\n  ".join(lines) + "\n}\n"


def _kernel_text(program: MapProgram, shape: MapShape) -> str:
    names = {place: f"t{place[0]}_{place[1]}" for place in shape.buffers()}
    parameters = [f"{_kind(shape, place[0])} {name}" for place, name in names.items()]
    parameters += [f"device const {kind}* c{number}" for number, kind in program.looked_up]
    parameters.append("constant long* table")
    listed = [f"{text} [[buffer({index})]]" for index, text in enumerate(parameters)]
    listed += ["uint2 group [[threadgroup_position_in_grid]]"]
    listed += ["uint me [[thread_index_in_threadgroup]]"]
    cases = []
    for slot in range(shape.slots):
        given = [
            names[number, 0 if number in shape.shared else slot]
            for number in range(len(shape.operands))
        ]
        given += [f"c{number}" for number, _ in program.looked_up]
        cases.append(f"case {slot}: compute(table, row, at, {', '.join(given)}); break;")
    lines = [
        f"kernel void pointwise_map({', '.join(listed)}) {{",
        "  const int slot = slot_of(table, group.x);",
        "  constant long* row = table + slot * WIDTH;",
        "  const long first = first_of(row, group.x), stop = stop_of(row, first);",
        "  for (long at = first + long(me); at < stop; at += kThreads) {",
        "    switch (slot) {",
        *(f"      {case}" for case in cases),
        "    }\n  }\n}\n",
    ]
    return "\n".join(lines)
