"""The process that an implementation is loaded into and called in."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

from torchyard_conformance import Subject, law, unverified, violated
from torchyard_conformance._laws.truth._process import implementations
from torchyard_conformance._outcome import Unverified

_Implementation = tuple[str, str, str]

# The device whose calls work in a forked process.
_AT_ONCE: Final = 4


def _cases(subject: Subject) -> Mapping[str, _Implementation | str]:
    """Return each implementation that can be called here, or why there is none."""
    try:
        found = list(implementations(subject))
    except (ImportError, Unverified) as error:
        return {"unavailable": str(error)}
    return {
        f"{name}@{device}/{contract.partition('/')[0]}": (contract, device, name)
        for contract, device, name in found
    }


@law(
    "truth.process-left-alone",
    profiles=("attention-core", "kernels", "smoke"),
    cases=_cases,
    alone=True,
)
def test_a_call_leaves_the_process_alone(subject: Subject, case: _Implementation | str) -> None:
    """Loading an implementation, and calling it, changes nothing that the whole process shares.

    Each implementation is loaded and called twice in a process in which nothing of its plugin was
    before, so that no earlier call has changed already what this one would. Looked at is what
    registration.leaves-process-alone looks at when the plugin is imported.

    Why: what a kernel sets for itself it sets for the program that calls it, and the first call of
    a library is where nobody looks for it.

    Fix: set and restore around the kernel, also where it raises; hand settings to a library in
    its arguments rather than in the environment.
    """
    if isinstance(case, str):
        unverified(case)
    changed = _observed(subject)[case]
    if isinstance(changed, str):
        unverified(f"it cannot be loaded and called alone: {changed}")
    if changed:
        violated(f"expected the process as it was; {'; '.join(changed)}")


@cache
def _observed(subject: Subject) -> Mapping[_Implementation, Any]:
    asked = list(implementations(subject))
    groups = [[item for item in asked if _forks(item)]]
    groups += [[item] for item in asked if not _forks(item)]
    found: dict[_Implementation, Any] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for seen in pool.map(lambda group: _seen(subject, group), filter(None, groups)):
            found |= seen
    return found


def _forks(implementation: _Implementation) -> bool:
    """Return whether it is tried in a forked process, in which no accelerator's runtime works."""
    return sys.platform != "win32" and implementation[1] == "cpu"


def _seen(subject: Subject, group: list[_Implementation]) -> dict[_Implementation, Any]:
    """Return what a fresh process saw of some implementations on one device."""
    with tempfile.TemporaryDirectory(prefix="torchyard-process-") as folder:
        path = Path(folder, "seen.json")
        forked = _forks(group[0])
        code = (
            "from torchyard_conformance._laws.truth._process import observe\n"
            f"observe({subject.name!r}, {group!r}, {str(path)!r}, forked={forked})\n"
        )
        process = subject.fresh(code, timeout=300.0)
        if not path.is_file():
            last = " ".join(process.stderr.split()[-30:])
            unverified(f"the process ended with status {process.returncode}: {last}")
        seen = json.loads(path.read_text(encoding="utf-8"))
    return dict(zip(group, seen, strict=True))
