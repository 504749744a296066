"""One run of a program, in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from torchyard_conformance.metal._buffers import Region

__all__ = ["Launch", "RawFinding", "Result", "execute", "write_regions"]

# The runtime's status where a kernel accesses parts of what it was said to access as a whole.
_TOO_COARSE: Final = 4


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is launched.

    Attributes:
        kernel: its name.
        grid: threadgroups by dimension.
        threads: threads of a threadgroup by dimension.
        width: lanes of a simdgroup.
        order: of the threads and threadgroups: 0 theirs, 1 the reverse, others a permutation.
        group_memory: bytes by index, of threadgroup memory that the launch sets.
    """

    kernel: str
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    width: int = 32
    order: int = 0
    group_memory: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RawFinding:
    """A finding as the runtime writes it down; see runtime/findings.h."""

    kind: str
    site: int
    other_site: int
    line: int
    other_line: int
    who: tuple[int, int]
    other: tuple[int, int]
    region: int | None
    offset: int
    size: int
    variable: str
    element: int
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a run leaves: its findings, the regions' contents, and who wrote each unit last.

    Attributes:
        launch: what was run.
        program: the program's file, whose sites the findings have.
        findings: in the order in which they were found.
        contents: region -> bytes, of those that the kernel may write.
        writers: region -> rows of (site, threadgroup and 1, thread), 24 bytes for each unit.
    """

    launch: Launch
    program: Path
    findings: tuple[RawFinding, ...]
    contents: Mapping[int, bytes]
    writers: Mapping[int, bytes]


def write_regions(regions: list[Region], folder: Path) -> None:
    """Write what all runs begin with."""
    for number, region in enumerate(regions):
        (folder / f"region{number}").write_bytes(region.content)
        if region.valid is not None:
            (folder / f"region{number}.valid").write_bytes(region.valid)


def execute(
    program: Path, launch: Launch, regions: list[Region], inputs: Path, folder: Path, timeout: float
) -> Result:
    """Run a program once.

    Args:
        program: the file.
        launch: the launch.
        regions: its memory.
        inputs: the folder that ``write_regions`` wrote to.
        folder: an empty folder for the run.
        timeout: in seconds.
    """
    folder.mkdir()
    words = [str(program), str(folder), str(inputs)]
    for coarse in (1, 0):
        (folder / "job").write_text(_job(launch, regions, coarse), encoding="utf-8")
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return Result(launch, program, (_timed_out(timeout),), {}, {})
        if done.returncode != _TOO_COARSE:
            break
    report = folder / "findings"
    text = report.read_text(encoding="utf-8") if report.is_file() else ""
    if done.returncode or not text.endswith("end\n"):
        raise RuntimeError(
            f"metal.run: {launch.kernel}: the process ended with status {done.returncode} and "
            f"without its findings: {done.stderr.strip() or 'no message'}"
        )
    contents, writers = {}, {}
    for number in range(len(regions)):
        out = folder / f"region{number}.out"
        if out.is_file():
            contents[number] = out.read_bytes()
            writers[number] = (folder / f"region{number}.writers").read_bytes()
    found = tuple(_finding(line) for line in text.splitlines()[:-1])
    return Result(launch, program, found, contents, writers)


def _job(launch: Launch, regions: list[Region], coarse: int) -> str:
    lines = [
        f"kernel {launch.kernel}",
        "grid " + " ".join(map(str, launch.grid)),
        "threads " + " ".join(map(str, launch.threads)),
        f"width {launch.width}",
        f"seed {launch.order}",
        f"coarse {coarse}",
    ]
    for region in regions:
        masked = int(region.valid is not None)
        lines.append(
            f"region {len(region.content)} {region.skew} {int(region.initialised)} {masked}"
        )
    for number, region in enumerate(regions):
        for place in region.places:
            lines.append(f"buffer {place.parameter.index} {number} {place.offset}")
    lines += [f"group {index} {size}" for index, size in launch.group_memory]
    return "\n".join(lines) + "\n"


def _finding(line: str) -> RawFinding:
    kind, *numbers, variable, element, count, text = line.split("\t")
    site, other_site, at, other_at, *rest = map(int, numbers)
    group, thread, other_group, other_thread, has_region, region, offset, size = rest
    return RawFinding(
        kind=kind,
        site=site,
        other_site=other_site,
        line=at,
        other_line=other_at,
        who=(group, thread),
        other=(other_group, other_thread),
        region=region if has_region else None,
        offset=offset,
        size=size,
        variable=variable,
        element=int(element),
        count=int(count),
        text=text,
    )


def _timed_out(seconds: float) -> RawFinding:
    nothing = RawFinding("timeout", 0, 0, 0, 0, (0, 0), (0, 0), None, 0, 0, "", 1, 1, "")
    return replace(nothing, text=f"no end within {seconds:g} seconds")
