"""From what runs wrote down to findings with names."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from torchyard_conformance.metal._buffers import Place, Region
from torchyard_conformance.metal._compiler import compiler
from torchyard_conformance.metal._finding import KINDS, Finding
from torchyard_conformance.metal._process import Launch, RawFinding, Result
from torchyard_conformance.metal._source._translation import FILE

__all__ = ["differences", "findings_of", "tensor_of"]


@dataclass(frozen=True, slots=True)
class _Sites:
    """Lines of the source by sites of a program."""

    lines: dict[int, int]

    @staticmethod
    def of(program: Path, sites: Iterable[int]) -> _Sites:
        wanted = sorted({site for site in sites if site})
        command = compiler().symbolizer
        if not wanted or not command:
            return _Sites({})
        # A site is a return address: the call is before it.
        words = [command, "-a", "-i", "-e", str(program), *(hex(site - 1) for site in wanted)]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        lines: dict[int, int] = {}
        site = 0
        for row in text.splitlines():
            if row.startswith("0x"):
                site = int(row, 16) + 1
            elif site not in lines:
                # Of functions inlined into one another the first that the source has.
                file, _, line = row.rpartition(":")
                digits = line.split()[0] if line else ""
                if Path(file).name == FILE and digits.isdigit():
                    lines[site] = int(digits)
        return _Sites(lines)

    def line(self, site: int, otherwise: int) -> int:
        return self.lines.get(site, otherwise)


def findings_of(result: Result, regions: list[Region]) -> list[Finding]:
    """Return a run's findings with their lines, buffers and names."""
    sites = _Sites.of(
        result.program,
        (site for raw in result.findings for site in (raw.site, raw.other_site)),
    )
    found: dict[tuple[object, ...], Finding] = {}
    for raw in result.findings:
        made = _finding(raw, result.launch, sites, regions)
        key = (made.kind, made.line, made.other_line, made.buffer, made.text)
        seen = found.get(key)
        found[key] = replace(seen, count=seen.count + made.count) if seen else made
    updates = {
        (one.buffer, one.line)
        for one in found.values()
        if one.kind == "missing-atomic" and one.line == one.other_line
    }
    # The reads and writes that such an update consists of conflict too.
    return [
        one
        for one in found.values()
        if one.kind == "missing-atomic"
        or one.line != one.other_line
        or (one.buffer, one.line) not in updates
    ]


def _finding(raw: RawFinding, launch: Launch, sites: _Sites, regions: list[Region]) -> Finding:
    line, other_line = sites.line(raw.site, raw.line), sites.line(raw.other_site, raw.other_line)
    buffer, index = raw.variable, raw.offset // raw.element if raw.region is not None else None
    places: list[Place] = []
    if raw.region is not None and raw.region >= 0:
        places = _touched(regions[raw.region], raw.offset)
        buffer = ", ".join(place.parameter.name for place in places)
        index = (raw.offset - places[0].offset) // _element(places[0], raw.element)
    kind, text = raw.kind, raw.text
    if kind == "race":
        kind, text = _race(raw, line == other_line, len(places) > 1)
    elif kind in ("out-of-bounds", "stride"):
        text = _outside(raw, places)
    elif kind == "divergent-barrier":
        text = f"not every thread comes to this {raw.text}"
        text += f"; another waits at line {raw.other_line}" if raw.other_line else ""
    elif kind == "threadgroup-memory":
        text = f"{raw.text} bytes of threadgroup memory; an Apple GPU has 32768"
    elif kind in ("half-overflow", "bfloat-overflow"):
        text = f"{float(raw.text):g} is beyond the largest {kind.split('-')[0]}"
    elif kind in ("inactive-lane", "divergent-simdgroup"):
        text = f"{raw.text}: {KINDS[kind]}"
    elif kind == "simd-width":
        text = f"{raw.text} needs simdgroups of 32 lanes"
    has_other = raw.other_site or kind == "divergent-barrier"
    return Finding(
        kind=kind,
        kernel=launch.kernel,
        line=line,
        thread=_position(raw.who[1], launch.threads),
        group=_position(raw.who[0], launch.grid),
        buffer=buffer,
        index=index,
        text=text or KINDS[kind],
        other_line=other_line,
        other_thread=_position(raw.other[1], launch.threads) if has_other else None,
        other_group=_position(raw.other[0], launch.grid) if has_other else None,
        width=launch.width,
        order=launch.order,
        count=raw.count,
    )


def _race(raw: RawFinding, same_line: bool, aliased: bool) -> tuple[str, str]:
    """Return a conflict's name by what the accesses are, and the words for it."""
    how, *marks = raw.text.split()
    what = f"{'reads' if how == 'write-read' else 'writes'} what another thread " + (
        "reads" if how == "read-write" else "writes"
    )
    if aliased:
        return "aliasing", f"{what}, in memory that the buffers share"
    if "one-atomic" in marks:
        return "missing-atomic", f"{what}, and only one of the two is atomic"
    if how == "update-write" and same_line:
        return "missing-atomic", f"reads and {what}: an update that is not atomic"
    if how in ("write-read", "read-write") and "groups" not in marks:
        flag = "mem_device" if raw.region is not None and raw.region >= 0 else "mem_threadgroup"
        return "missing-barrier", f"{what}, with no barrier of mem_flags::{flag} between"
    where = "of another threadgroup" if "groups" in marks else "of its threadgroup"
    return "race", f"{what.replace('thread', f'thread {where}', 1)}, and nothing orders the two"


def _outside(raw: RawFinding, places: list[Place]) -> str:
    if raw.region is None:
        return raw.text or KINDS["out-of-bounds"]
    if raw.kind == "stride":
        return f"{raw.size} bytes that belong to no element"
    size = f" of {places[0].size // _element(places[0], raw.element)}" if places else ""
    return f"{raw.size} bytes outside of the elements{size}"


def _touched(region: Region, offset: int) -> list[Place]:
    """Return the buffers that have a byte, or the nearest."""
    having = [
        place for place in region.places if place.offset <= offset < place.offset + place.size
    ]
    if having:
        return sorted(having, key=lambda place: place.parameter.index)
    edge = min if offset < 0 else max
    return [edge(region.places, key=lambda place: place.offset)]


def _element(place: Place, otherwise: int) -> int:
    return place.like.element_size() if place.like is not None else otherwise


def _position(number: int, sizes: tuple[int, int, int]) -> tuple[int, int, int]:
    return number % sizes[0], number // sizes[0] % sizes[1], number // sizes[0] // sizes[1]


def tensor_of(place: Place, content: bytes) -> Tensor:
    """Return a buffer's values as a tensor of its shape and strides."""
    assert place.like is not None
    like = place.like
    raw = torch.frombuffer(
        bytearray(content[place.offset : place.offset + place.size]), dtype=like.dtype
    )
    return raw.as_strided(like.shape, like.stride())


def differences(result: Result, base: Result, regions: list[Region], kind: str) -> list[Finding]:
    """Return a finding for each buffer whose values differ between two runs by more than rounding.

    Sums in another order differ by roundings of the largest value: by 64 of them they may.
    """
    found = []
    for number, content in result.contents.items():
        for place in regions[number].places:
            if place.like is None or number not in base.contents or place.parameter.reads_only:
                continue
            mine, its = tensor_of(place, content), tensor_of(place, base.contents[number])
            index = _first_difference(mine, its)
            if index is None:
                continue
            offset = place.offset + sum(
                at * stride * place.like.element_size()
                for at, stride in zip(index, place.like.stride(), strict=True)
            )
            found.append(_difference(result, base, regions, number, place, offset, kind))
    return found


def _difference(
    result: Result,
    base: Result,
    regions: list[Region],
    number: int,
    place: Place,
    offset: int,
    kind: str,
) -> Finding:
    rows = len(result.writers[number]) // 24
    unit = -(-len(regions[number].content) // rows)
    at = offset // (4 if unit > 2 else unit)
    site, group, thread = struct.unpack_from("<3Q", result.writers[number], 24 * min(at, rows - 1))
    sites = _Sites.of(result.program, [site])
    mine, its = (f"width {one.launch.width}, order {one.launch.order}" for one in (result, base))
    return Finding(
        kind=kind,
        kernel=result.launch.kernel,
        line=sites.line(site, 0),
        thread=_position(thread, result.launch.threads),
        group=_position(max(group, 1) - 1, result.launch.grid),
        buffer=place.parameter.name,
        index=(offset - place.offset) // _element(place, 1),
        text=f"the value with {mine} differs from that with {its}",
        width=result.launch.width,
        order=result.launch.order,
    )


def _first_difference(mine: Tensor, its: Tensor) -> tuple[int, ...] | None:
    if not mine.is_floating_point():
        differs = mine != its
    else:
        a, b = mine.double(), its.double()
        finite = b[b.isfinite()].abs()
        bound = 64 * torch.finfo(mine.dtype).eps * (float(finite.max()) if finite.numel() else 0.0)
        same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= bound)
        differs = ~same
    if not bool(differs.any()):
        return None
    return tuple(int(at) for at in differs.nonzero()[0])
