"""Tries a cell of each gate: installs the candidate as a user would, then runs checks."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchyard import child_environ
from torchyard_release._artifacts._wheel import requirements_of
from torchyard_release._declaration._train import Gate
from torchyard_release._gates import _verification as verification
from torchyard_release._gates._clean_room import CleanRoom, Installed, strangers
from torchyard_release._gates._comparisons import try_benchmark, try_decisions, try_reverse
from torchyard_release._gates._verification import Bench, Finding, unverified
from torchyard_release._records._evidence import Outcome

_KEPT_LINES: Final = 40
# What a session says where a machine lacks what it needs.
_UNVERIFIED: Final = "UNVERIFIED"


def can_try(gate: Gate) -> bool:
    """Whether `verify` tries a gate; others are recorded by a command of their own."""
    return bool(gate.session or gate.command) or gate.name in _ATTEMPTS


def attempt(gate: Gate, cell: str, bench: Bench) -> Finding:
    """Try one cell of a gate."""
    if gate.session or gate.command:
        return _try_command(gate, cell, bench)
    known = _ATTEMPTS.get(gate.name)
    if known is None:
        return unverified(
            f"train.toml does not say how {gate.name!r} is tried",
            "give the gate a session or a command, or run the command that records it",
        )
    return known(gate, cell, bench)


def _try_alone(gate: Gate, cell: str, bench: Bench) -> Finding:
    return _installed(bench, (cell,))


def _try_together(gate: Gate, cell: str, bench: Bench) -> Finding:
    return _installed(bench, bench.packages)


def _try_torch(gate: Gate, cell: str, bench: Bench) -> Finding:
    train = bench.workspace.train
    using = [train.package(name) for name in bench.packages if train.package(name).torch]
    if not using:
        return unverified("no package of this train needs torch", "take the gate out of train.toml")
    fitting = [
        package.name
        for package in using
        if Requirement(f"torch{package.torch}").specifier.contains(cell)
    ]
    if not fitting:
        return Finding(
            Outcome.FAIL,
            f"every package refuses torch {cell}, which [torch] of train.toml promises; widen "
            "their range or narrow the promise",
        )
    finding = _installed(bench, fitting, torch=cell)
    # Whoever is built for one torch says so in train.toml, and in the tables that users read.
    out = [f"{p.name} ({p.torch})" for p in using if p.name not in fitting]
    if not out:
        return finding
    return replace(finding, summary=f"{finding.summary}; without {', '.join(out)}")


def _try_dependencies(gate: Gate, cell: str, bench: Bench) -> Finding:
    names = bench.packages
    if cell == "newest":
        return _installed(bench, names)
    if cell != "lowest":
        return unverified(f"{cell!r} is neither lowest nor newest", "correct cells in train.toml")
    siblings = {canonicalize_name(package.name) for package in bench.workspace.packages}
    pins, endless = [], []
    for artifact in bench.candidate.artifacts:
        if artifact.kind != "wheel":
            continue
        for requirement in requirements_of(bench.folder / "dist" / artifact.file):
            # The oldest torch is a gate of its own.
            if canonicalize_name(requirement.name) in {*siblings, "torch"}:
                continue
            lowest = _lowest(requirement)
            if lowest:
                pins.append(f"{requirement.name}=={lowest}")
            else:
                endless.append(f"{artifact.package}: {requirement}")
    if endless:
        return Finding(
            Outcome.FAIL,
            f"{len(endless)} requirements have no lower bound; give each one that was tried",
            tuple(sorted(set(endless))),
        )
    return _installed(bench, names, pins=_highest(pins))


def _installed(
    bench: Bench, packages: Sequence[str], *, torch: str = "", pins: Sequence[str] = ()
) -> Finding:
    """Install packages into a room and try what every user tries first."""
    room = bench.room(bench.workspace.requirements(*packages), torch)
    wanted = bench.pins(*packages)
    installed = room.install(*wanted, overlay=bench.overlay, pins=pins)
    names = bench.workspace.requirements(*packages)
    wrong = strangers(installed, _normalised(bench.packages), bench.candidate.sums)
    wrong += [f"{name}: {line}" for name, lines in room.smoke(names).items() for line in lines]
    # One package alone has nothing that it could disagree with.
    wrong += room.check() if len(names) > 1 else ()
    listing = tuple(f"{item.name} {item.version}" for item in installed)
    command = ("pip", "install", *wanted)
    if wrong:
        return Finding(
            Outcome.FAIL,
            f"{len(wrong)} things are wrong where {', '.join(packages)} is installed: {wrong[0]}; "
            "correct it and build a new candidate",
            (*wrong, *listing),
            command,
            bench.files_of(*packages),
        )
    return Finding(
        Outcome.PASS,
        f"{_those(installed, names)} of the train, {len(installed)} distributions in all, "
        f"installed{f' with torch {torch}' if torch else ''} and imported from site-packages",
        listing,
        command,
        bench.files_of(*packages),
    )


def _try_command(gate: Gate, cell: str, bench: Bench) -> Finding:
    git = bench.workspace.git
    if gate.session:
        # A session builds from the checkout, and builds are reproducible; so it is about these
        # bytes where the checkout is what they were built from.
        if git.commit() != bench.candidate.commit or git.changes():
            return unverified(
                f"the checkout is not {bench.candidate.commit[:12]}, which the candidate was "
                "built from",
                f"`git switch --detach {bench.candidate.tag}` in a clean clone, and try there",
            )
        words = [sys.executable, "-m", "nox", "--session", gate.session.format(cell=cell)]
    else:
        room = _whole(bench) if any("{python}" in word for word in gate.command) else None
        values = {
            "cell": cell,
            "dist": str(bench.folder / "dist"),
            "python": str(room.python) if room else sys.executable,
        }
        words = [word.format(**values) for word in gate.command]
    done = subprocess.run(
        words,
        # A command reads the candidate's commit, whatever the checkout holds.
        cwd=bench.workspace.root if gate.session else bench.tree(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=child_environ({}),
    )
    lines = tuple(done.stdout.splitlines()[-_KEPT_LINES:])
    said = next((line for line in reversed(lines) if _UNVERIFIED in line), "")
    shown = shlex.join(words)
    if done.returncode == 0:
        return Finding(Outcome.PASS, f"`{shown}` ended well", lines, tuple(words))
    if said:
        reason = said[said.index(_UNVERIFIED) :]
        return Finding(Outcome.UNVERIFIED, reason, lines, tuple(words))
    return Finding(
        Outcome.FAIL,
        f"`{shown}` ended with {done.returncode}; see its last lines, correct it, try again",
        lines,
        tuple(words),
    )


def _whole(bench: Bench) -> CleanRoom:
    packages = bench.packages
    room = bench.room(packages)
    room.install(*bench.pins(*packages), overlay=bench.overlay)
    return room


def _lowest(requirement: Requirement) -> str:
    """Return the version that a requirement promises to work with; empty where it has none."""
    for specifier in requirement.specifier:
        if specifier.operator in {">=", "==", "~="}:
            return specifier.version.removesuffix(".*")
    return ""


def _highest(pins: Sequence[str]) -> list[str]:
    """Keep one pin per project: the lowest that every package of the train allows."""
    from packaging.version import Version

    found: dict[str, str] = {}
    for pin in pins:
        name, _, version = pin.partition("==")
        name = canonicalize_name(name)
        if name not in found or Version(version) > Version(found[name]):
            found[name] = version
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _those(installed: Sequence[Installed], names: Sequence[str]) -> int:
    wanted = _normalised(names)
    return sum(item.name in wanted for item in installed)


def _normalised(names: Sequence[str]) -> set[str]:
    """Return names as installers compare them."""
    return {canonicalize_name(name) for name in names}


_ATTEMPTS: Final[Mapping[str, Callable[[Gate, str, Bench], Finding]]] = MappingProxyType(
    {
        verification.ALONE: _try_alone,
        verification.BENCHMARK: try_benchmark,
        verification.DECISIONS: try_decisions,
        verification.DEPENDENCIES: _try_dependencies,
        verification.REVERSE: try_reverse,
        verification.TOGETHER: _try_together,
        verification.TORCH: _try_torch,
    }
)
