"""Decisions of machines that are described by files, as short texts that a diff shows well."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torchyard import Accelerator, Platform, Registry, read_platform_file
from torchyard._platforms.files import PlatformFile, platform_names
from torchyard._registry.dump import dump_decisions
from torchyard_attention.contract import (
    BACKWARD,
    DEFINITIONS,
    FORWARD,
    AttentionRequest,
    MaskKind,
    ScoreKind,
)
from torchyard_cuda.fa4._known import known

__all__ = ["FOLDER", "NAMES", "current", "decisions_of", "flips", "golden"]

FOLDER: Final = Path(__file__).with_name("golden")
NAMES: Final = platform_names()

Decisions = Mapping[tuple[str, str], str]

# What stands for a token that a bucket lacks where another has one, such as "grad".
_ABSENT: Final = "-"

# A library that no machine's file has, and the version that was read.
_LIBRARY: Final = "flash-attn-4"
*_, _VERSION = known()

# score + slopes[h] * (k - q), and (ids[q] == ids[k]) & (q >= k).
_ALIBI: Final = """["getitem",["$0","h"],{}]
["sub",["k","q"],{}]
["mul",["%0","%1"],{}]
["add",["s","%2"],{}]
"%3\""""
_DOCUMENTS: Final = """["getitem",["$0","q"],{}]
["getitem",["$0","k"],{}]
["eq",["%0","%1"],{}]
["ge",["q","k"],{}]
["bitwise_and",["%2","%3"],{}]
"%4\""""

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
    registry = Registry(platform=platform, environ={})
    dump = dump_decisions(registry, devices)
    found = {
        (contract, bucket): name or "no implementation"
        for contract, buckets in dump.decisions.items()
        for bucket, name in buckets.items()
    }
    for contract, (bucket, request) in itertools.product((FORWARD, BACKWARD), _recorded(devices)):
        if contract == FORWARD or request.grad:
            found[contract, bucket] = registry.decide(contract, request).name or "no implementation"
    return found


def _recorded(devices: set[str]) -> Iterator[tuple[str, AttentionRequest]]:
    """Yield representative requests of attention with programs, which a bucket does not hold.

    Their buckets name the program in the place of its kind.
    """
    for device in sorted(devices):
        for request in DEFINITIONS[FORWARD].cases(device):
            assert isinstance(request, AttentionRequest)
            bucket = request.bucket()
            programs: dict[str, Any] = {}
            if request.score is ScoreKind.POINTWISE:
                programs |= {"score_text": _ALIBI, "score_captured": (("float32", 1),)}
                bucket = bucket.replace("score=pointwise", "score=alibi")
            if request.mask is MaskKind.BLOCKS:
                programs |= {"mask_text": _DOCUMENTS, "mask_captured": (("int64", 1),)}
                bucket = bucket.replace("mask=blocks", "mask=documents")
            if programs:
                yield bucket, dataclasses.replace(request, **programs)


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
        lines += _lines_of(found, contract)
    more = decisions_of(_with_library(file.platform))
    changed = {key: name for key, name in more.items() if found[key] != name}
    if changed:
        lines += ["", f"# With {_LIBRARY} {_VERSION} installed, instead:"]
    for contract in sorted({contract for contract, _ in changed}):
        lines += ["", contract, *_lines_of(changed, contract)]
    return "\n".join([*lines, ""])


def _lines_of(found: Decisions, contract: str) -> list[str]:
    lines = []
    for name in sorted({n for (c, _), n in found.items() if c == contract}):
        buckets = [b for (c, b), n in found.items() if (c, n) == (contract, name)]
        lines += [f"  {name}", *(f"    {line}" for line in _joined(buckets))]
    return lines


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
    yield f"{_LIBRARY} installed", _with_library(platform)
    if platform.accelerators:
        [first, *rest] = platform.accelerators
        for field, value in _OTHER.items():
            changed: Accelerator = replace(first, **{field: value})
            yield f"accelerator.{field}", replace(platform, accelerators=(changed, *rest))


def _with_library(platform: Platform) -> Platform:
    """Return a machine with a library that implementations take where it is there."""
    libraries = {**dict(platform.libraries), _LIBRARY: _VERSION}
    return dataclasses.replace(platform, libraries=tuple(sorted(libraries.items())))


def golden(name: str) -> Path:
    """Return the file that holds a machine's decisions."""
    return FOLDER / f"{name}.txt"


def current(name: str) -> str:
    """Return what the file should hold now."""
    return _text_of(read_platform_file(name))
