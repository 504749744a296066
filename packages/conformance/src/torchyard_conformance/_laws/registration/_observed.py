"""Observations of the subject in fresh interpreters: each is started once and shared by laws."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from torchyard_conformance import Subject, unverified, violated
from torchyard_conformance._subjects._fresh import Fresh, starter

_MODULE: Final = "torchyard_conformance._laws.registration._observe"
# What torchyard itself brings into every process is nobody's fault.
_OURS: Final = "torchyard"

OLD_TORCH: Final = "1.0.0"
_OLD_TORCH: Final = """
raise ImportError("this torch is a stand-in, as old as torch 1.0")
"""


@dataclass(frozen=True, slots=True)
class Observation:
    """A fresh interpreter, and what it wrote down.

    Attributes:
        process: how it ended.
        seen: step to what was seen; a step that it did not reach is not there.
    """

    process: Fresh
    seen: Mapping[str, Any]

    def step(self, name: str) -> Mapping[str, Any]:
        """Return what a step saw; the law is unverified where it was not reached.

        That the process ends before is for the laws on activation and on its end.
        """
        found = self.seen.get(name)
        if not isinstance(found, dict):
            unverified(f"the process never came so far: {self.death()}")
        return found

    def death(self) -> str:
        """Return how the process ended, in words."""
        last = " ".join(self.process.stderr.split()[-30:])
        if self.process.returncode is None:
            return f"it was still running after {self.process.seconds:.0f} s: {last}"
        return f"it ended with status {self.process.returncode}: {last}"


@cache
def alone(subject: Subject) -> Observation:
    """Observe the plugin loaded before torch."""
    return _observe(
        subject,
        "import sys; before = sorted(sys.modules)",
        f"alone(before, {subject.name!r}, path)",
    )


@cache
def after_torch(subject: Subject) -> Observation:
    """Observe the plugin loaded after torch; the law is unverified where there is no torch."""
    if find_spec("torch") is None:
        unverified("torch is not installed")
    return measure(subject)


def measure(subject: Subject) -> Observation:
    """Observe the plugin loaded after torch, once more."""
    return _observe(subject, "", f"after_torch({subject.name!r}, path)")


@cache
def switched_off(subject: Subject) -> Observation:
    """Observe the plugin switched off."""
    return _observe(
        subject, "", f"summary({subject.name!r}, path)", {"TORCHYARD_PLUGINS": f"-{subject.name}"}
    )


@cache
def with_old_torch(subject: Subject) -> Observation:
    """Observe the plugin where torch is one that nothing here supports, and cannot be imported."""
    with tempfile.TemporaryDirectory(prefix="torchyard-torch-") as folder:
        info = Path(folder, f"torch-{OLD_TORCH}.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: torch\nVersion: {OLD_TORCH}\n", encoding="utf-8"
        )
        Path(folder, "torch.py").write_text(_OLD_TORCH, encoding="utf-8")
        before = starter().environ.get("PYTHONPATH", "")
        path = os.pathsep.join(filter(None, [folder, before]))
        return _observe(subject, "", f"summary({subject.name!r}, path)", {"PYTHONPATH": path})


def loaded(subject: Subject) -> Mapping[str, Any]:
    """Return what activating the plugin showed, in whichever order with torch it works.

    The law is unverified where it works in neither: that is another law's affair.
    """
    orders = [alone(subject)]
    if find_spec("torch") is not None:
        orders.append(after_torch(subject))
    for observation in orders:
        found = observation.seen.get("activation", {})
        if is_well(found):
            return dict(found)
    unverified("the plugin cannot be loaded; see registration.activates")


def is_well(found: Mapping[str, Any]) -> bool:
    """Return whether a plugin was loaded."""
    return found.get("state") in {"active", "discovered"}


def hold_equal(subject: Subject, found: Mapping[str, Any], where: str) -> None:
    """Break the law where a plugin offers something else than when it was loaded alone.

    Args:
        subject: the plugin.
        found: what it did elsewhere.
        where: that place, in words.
    """
    usual = loaded(subject)
    if "raised" in found:
        violated(f"expected it to work {where}, got {found['raised']}")
    if not is_well(found):
        violated(f"expected it to work {where}, it is {found['state']}: {found['reason']}")
    if found["offers"] != usual["offers"]:
        violated(
            f"expected it to offer the same {where}, got {found['offers']} instead of "
            f"{usual['offers']}"
        )


def own_modules(subject: Subject) -> frozenset[str]:
    """Return the top-level modules that nothing needs until the plugin is used.

    Its own, those of what its distribution requires, and torch; not torchyard's, nor what
    torchyard requires.
    """
    shared = {_OURS, *_required(_OURS)}
    names = {subject.distribution, *_required(subject.distribution)} - shared
    found = {subject.package, "torch"}
    for module, distributions in packages_distributions().items():
        if names & {_canonical(item) for item in distributions}:
            found.add(module)
    return frozenset(name for name in found if not name.startswith(("_", "__editable__")))


def _required(distribution: str) -> set[str]:
    try:
        lines = requires(distribution) or []
    except PackageNotFoundError:
        return set()
    return {
        _canonical(requirement.name)
        for requirement in map(Requirement, lines)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _observe(
    subject: Subject, first: str, call: str, settings: Mapping[str, str] | None = None
) -> Observation:
    with tempfile.TemporaryDirectory(prefix="torchyard-observe-") as folder:
        path = Path(folder, "seen.json")
        function = call.partition("(")[0]
        code = f"{first}\nfrom {_MODULE} import {function}\npath = {str(path)!r}\n{call}\n"
        process = subject.fresh(code, settings=settings)
        seen = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return Observation(process, seen)
