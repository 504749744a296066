"""Decisions of machines that are described by files, as short texts that a diff shows well."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torchyard import Accelerator, Platform, Registry, read_platform_file
from torchyard._platforms.files import PlatformFile, platform_names
from torchyard._registry.dump import dump_decisions

__all__ = ["FOLDER", "NAMES", "current", "decisions_of", "flips", "golden"]

FOLDER: Final = Path(__file__).with_name("golden")
NAMES: Final = platform_names()

Decisions = Mapping[tuple[str, str], str]

# What stands for a token that a bucket lacks where another has one, such as "grad".
_ABSENT: Final = "-"

# Of the accelerator: values that no machine of today's has.
_OTHER: Final[dict[str, Any]] = {
    "architecture": "sm_35",
    "memory": 1 << 30,
    "shared_memory": 16 << 10,
    "multiprocessors": 1,
    "warp_size": 16,
    "core_clock": 1,
    "memory_clock": 1,
    "driver": "1.0",
    "runtime": "1.0",
}


@functools.cache
def decisions_of(platform: Platform) -> Decisions:
    """Return what a machine's accelerator computes with, or its CPU where it has no accelerator.

    No setting of the process takes part, and nothing that was measured here. It is not changed.
    """
    devices = {item.device for item in platform.accelerators} or {"cpu"}
    dump = dump_decisions(Registry(platform=platform, environ={}), devices)
    return {
        (contract, bucket): name or "no implementation"
        for contract, buckets in dump.decisions.items()
        for bucket, name in buckets.items()
    }


def _text_of(file: PlatformFile) -> str:
    """Return a machine's decisions: per contract and implementation, the buckets it computes.

    Buckets that differ in one place are one line, with the alternatives between bars.
    """
    found = decisions_of(file.platform)
    facts = ", ".join(_deciding_facts(file.platform)) or "none"
    lines = [
        f"# {file.name}: {file.summary}. Written by `python -m tests.platforms`.",
        f"# Facts that change a decision where they are another: {facts}.",
    ]
    for contract in sorted({contract for contract, _ in found}):
        lines += ["", contract]
        for name in sorted({n for (c, _), n in found.items() if c == contract}):
            buckets = [b for (c, b), n in found.items() if (c, n) == (contract, name)]
            lines += [f"  {name}", *(f"    {line}" for line in _joined(buckets))]
    return "\n".join([*lines, ""])


def _joined(buckets: list[str]) -> list[str]:
    rows = [bucket.split() for bucket in buckets]
    width = max(map(len, rows))
    found = {tuple(frozenset({token}) for token in _padded(row, width)) for row in rows}
    # From the last place on: what comes first in a bucket is what a reader looks for.
    for place in reversed(range(width)):
        groups: dict[Any, set[str]] = {}
        for row in found:
            groups.setdefault((row[:place], row[place + 1 :]), set()).update(row[place])
        found = {(*left, frozenset(all_), *right) for (left, right), all_ in groups.items()}
    return sorted(" ".join("|".join(sorted(token)) for token in row) for row in found)


def _padded(row: list[str], width: int) -> list[str]:
    return [*row, *[_ABSENT] * (width - len(row))]


def _deciding_facts(platform: Platform) -> list[str]:
    """Return the facts of a machine of which another value changes a decision."""
    before = decisions_of(platform)
    return [fact for fact, other in flips(platform) if decisions_of(other) != before]


def flips(platform: Platform) -> Iterator[tuple[str, Platform]]:
    """Yield each fact that a verdict may read, and the machine with another value of it.

    Torch is left as it is: no plugin works without it, so that its absence would decide all.
    """
    replace = dataclasses.replace
    yield "system", replace(platform, system="Windows")
    yield "machine", replace(platform, machine="riscv64")
    yield "cpu_features", replace(platform, cpu_features=frozenset())
    for name, _ in platform.libraries:
        others = tuple(item for item in platform.libraries if item[0] != name)
        yield f"libraries.{name}", replace(platform, libraries=others)
        old = tuple((known, "1.0" if known == name else v) for known, v in platform.libraries)
        yield f"version of {name}", replace(platform, libraries=old)
    if platform.accelerators:
        [first, *rest] = platform.accelerators
        for field, value in _OTHER.items():
            changed: Accelerator = replace(first, **{field: value})
            yield f"accelerator.{field}", replace(platform, accelerators=(changed, *rest))


def golden(name: str) -> Path:
    """Return the file that holds a machine's decisions."""
    return FOLDER / f"{name}.txt"


def current(name: str) -> str:
    """Return what the file should hold now."""
    return _text_of(read_platform_file(name))
