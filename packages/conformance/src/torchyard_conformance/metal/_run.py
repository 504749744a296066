"""``run``: a kernel of Metal, run here under every check."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from torchyard import arguments
from torchyard_conformance.metal._buffers import Region, buffers_of, regions_of
from torchyard_conformance.metal._compilation import ACCESSES, ADDRESS, Program, build
from torchyard_conformance.metal._compiler import compiler
from torchyard_conformance.metal._finding import Finding
from torchyard_conformance.metal._judgement import differences, findings_of, tensor_of
from torchyard_conformance.metal._process import Launch, Result, execute, write_regions
from torchyard_conformance.metal._source._kernels import Kernel

__all__ = ["Outcome", "group_memory_of", "run", "sizes_of"]

_OF: Final = "metal.run"
# Of every Apple GPU, and what else a kernel may be run with to see whether it knows its own.
_APPLE: Final = 32
_WIDTHS: Final = (_APPLE, 16, 64)
_MOST_THREADS: Final = 1024


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of running a kernel.

    Attributes:
        outputs: buffers that the kernel may write, by the parameter's name, as the first run left
            them.
        findings: each fault once.
        runs: the launches that were made.
        checked_addresses: whether AddressSanitizer watched a run; without it overruns of a
            thread's own arrays go unseen.
    """

    outputs: Mapping[str, Tensor]
    findings: tuple[Finding, ...]
    runs: tuple[Launch, ...]
    checked_addresses: bool


def run(
    source: str,
    kernel: str,
    grid: int | Sequence[int],
    threads: int | Sequence[int],
    buffers: Sequence[Any] | Mapping[Any, Any],
    *,
    group_memory: Mapping[int, int] | None = None,
    simd_widths: Sequence[int] | None = None,
    orders: int = 3,
    address_sanitizer: bool = True,
    timeout: float = 60.0,
) -> Outcome:
    """Run a kernel of Metal on this machine's processor, and report what is wrong with it.

    The source is compiled as C++ against a shim. Threads of a threadgroup are fibers; every access
    to memory is checked before it is made. The kernel runs several times: with its threads and
    threadgroups in several orders, and with simdgroups of other widths where it uses simdgroups.

    What it does not show: what Apple's compiler makes of the source, its fast mathematics, and how
    fast anything is. Address spaces that do not fit are found by :func:`check`.

    Args:
        source: Metal Shading Language.
        kernel: the name of one of its kernels, or what ``host_name`` calls an instantiation.
        grid: threadgroups, by up to three dimensions.
        threads: threads of a threadgroup, by up to three dimensions; at most 1024.
        buffers: one for each buffer of the kernel, by index or by the parameter's name: a tensor on
            the CPU, of any strides, which stays as it is; ``Empty``; bytes or a ctypes structure.
            Tensors that share memory share it in the kernel.
        group_memory: index -> bytes of threadgroup memory that is a parameter.
        simd_widths: lanes of a simdgroup to run with, a multiple of 4 from 4 to 64. By default 32,
            then 16 and 64; a kernel that uses simdgroup matrices, which have 32 lanes, only 32.
        orders: how many orders to run in, at least 1.
        address_sanitizer: whether to build and run it under AddressSanitizer too, which knows the
            bounds of a thread's own arrays.
        timeout: seconds for each run.

    Raises:
        CompilationError: the source does not compile.
        CompilerMissingError: there is no C++ compiler.
        UnsupportedSourceError: it uses a part of Metal that is not supported here.
        TypeError, ValueError: an argument does not fit; names it.
    """
    source = arguments.text(_OF, "source", source)
    sizes = sizes_of("grid", grid), sizes_of("threads", threads)
    if sizes[1][0] * sizes[1][1] * sizes[1][2] > _MOST_THREADS:
        raise arguments.wrong_value(_OF, "threads", f"at most {_MOST_THREADS} in all", sizes[1])
    orders = arguments.integer(_OF, "orders", orders, least=1)
    addresses = address_sanitizer and compiler().has_address_sanitizer
    program = build(source, (ACCESSES, ADDRESS) if addresses else (ACCESSES,))
    found = program.kernels.get(kernel)
    if found is None:
        raise arguments.wrong_value(
            _OF, "kernel", f"one of {sorted(program.kernels)}", repr(kernel)
        )
    regions = regions_of(found, buffers_of(found, buffers))
    memory = group_memory_of(found, group_memory)
    first = Launch(kernel, *sizes, group_memory=memory)
    launches = [replace(first, width=width) for width in _widths(source, simd_widths)]
    launches[1:1] = [replace(launches[0], order=order) for order in range(1, orders)]
    results = _execute(program, launches, regions, addresses, timeout)
    outputs = {
        place.parameter.name: tensor_of(place, content)
        for number, content in results[0].contents.items()
        for place in regions[number].places
        if place.like is not None and not place.parameter.reads_only
    }
    return Outcome(outputs, _judged(results, regions), tuple(launches), addresses)


def sizes_of(name: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    """Return a grid or a threadgroup in three dimensions."""
    given = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(given) <= 3:
        raise arguments.wrong_value(_OF, name, "one to three sizes", f"{len(given)}")
    checked = [arguments.integer(_OF, name, size, least=1) for size in given]
    x, y, z = (*checked, 1, 1)[:3]
    return x, y, z


def _widths(source: str, given: Sequence[int] | None) -> tuple[int, ...]:
    if given is None:
        if "simdgroup_matrix" in source or "simdgroup_load" in source:
            return (_APPLE,)
        return _WIDTHS if "simd" in source else (_APPLE,)
    widths = tuple(
        arguments.integer(_OF, "simd_widths", width, least=4, most=64) for width in given
    )
    if not widths or any(width % 4 for width in widths):
        raise arguments.wrong_value(_OF, "simd_widths", "multiples of 4", widths)
    return widths


def group_memory_of(kernel: Kernel, given: Mapping[int, int] | None) -> tuple[tuple[int, int], ...]:
    """Return the bytes of each threadgroup memory that is a parameter, by index."""
    wanted = {part.index for part in kernel.parameters if part.attribute == "threadgroup"}
    found = dict(given or {})
    if set(found) != wanted:
        raise arguments.wrong_value(
            _OF, "group_memory", f"bytes for each of {sorted(wanted)}", sorted(found)
        )
    return tuple(sorted(found.items()))


def _execute(
    program: Program, launches: list[Launch], regions: list[Region], addresses: bool, timeout: float
) -> list[Result]:
    """Return what each launch left; the last is AddressSanitizer's, of the first launch."""
    work = [(program.paths[ACCESSES], launch) for launch in launches]
    if addresses:
        work.append((program.paths[ADDRESS], launches[0]))
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        write_regions(regions, Path(scratch))
        waiting = [
            pool.submit(
                execute, path, launch, regions, Path(scratch), Path(scratch, str(at)), timeout
            )
            for at, (path, launch) in enumerate(work)
        ]
        return [one.result() for one in waiting]


def _judged(results: list[Result], regions: list[Region]) -> tuple[Finding, ...]:
    base = results[0]
    found: dict[tuple[object, ...], Finding] = {}

    def add(findings: list[Finding]) -> None:
        for one in findings:
            found.setdefault((one.kind, one.line, one.other_line, one.buffer), one)

    usual = [one for one in results if one.launch.width == base.launch.width]
    for result in usual:
        add(findings_of(result, regions))
    if found:
        # What a faulty kernel leaves in other orders says nothing more.
        return tuple(found.values())
    for result in usual:
        add(differences(result, base, regions, "order"))
    for result in results:
        if result in usual:
            continue
        others = findings_of(result, regions)
        add([replace(one, kind="simd-width", text=f"{one.kind}: {one.text}") for one in others])
        if not others:
            add(differences(result, base, regions, "simd-width"))
    return tuple(found.values())
