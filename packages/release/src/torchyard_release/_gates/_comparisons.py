"""Gates that compare a candidate with the last release: decisions, speed, released plugins."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from packaging.version import Version

from torchyard_release._artifacts._wheel import fits_here
from torchyard_release._declaration._train import Gate
from torchyard_release._gates._clean_room import CleanRoom, InstallError
from torchyard_release._gates._verification import Bench, Finding, released_folders, unverified
from torchyard_release._records._evidence import Outcome

BENCHMARKS: Final = "benchmarks/release.py"
DECISIONS_FILE: Final = "decisions.json"
_ROUNDS: Final = 5
# A candidate may take this much longer than the last release, in the median of the rounds. Less is
# what two runs of the same code differ by on a machine that does other things too.
_SLOWER: Final = 1.15
_KEPT_LINES: Final = 40


def try_decisions(gate: Gate, cell: str, bench: Bench) -> Finding:
    """Compare what the registry chooses with what the last release's chose."""
    room = _room_of(bench)
    target = room.folder / DECISIONS_FILE
    words = ("-m", "torchyard", "decisions", "dump", "-o", str(target))
    done = room.run(*words, isolated=True)
    if done.returncode:
        return _broken("`torchyard decisions dump`", done)
    found = target.read_bytes()
    count = sum(len(buckets) for buckets in json.loads(found)["decisions"].values())
    kept = {DECISIONS_FILE: found}
    before = _output_of_the_last(bench, DECISIONS_FILE)
    if not count:
        return Finding(
            Outcome.FAIL, "the registry decided nothing; install a component into the train"
        )
    if before is None:
        return Finding(
            Outcome.UNVERIFIED,
            f"{count} decisions, and none of an earlier release to compare them with; from the "
            "next release on they are",
            outputs=kept,
        )
    diff = room.run("-m", "torchyard", "decisions", "diff", str(before), str(target), isolated=True)
    lines = tuple(diff.stdout.splitlines()[-_KEPT_LINES:])
    if diff.returncode == 0:
        return Finding(
            Outcome.PASS, f"{count} decisions, as the last release's", lines, outputs=kept
        )
    return Finding(
        Outcome.FAIL,
        "the registry decides otherwise than in the last release; explain each line in a fragment "
        "and have the gate's owner waive it, or correct it",
        lines,
        outputs=kept,
    )


def try_benchmark(gate: Gate, cell: str, bench: Bench) -> Finding:
    """Run benchmarks on the last release and on the candidate in turns, and compare.

    ``benchmarks/release.py`` prints, on its last line, one JSON document: name -> seconds.
    """
    script = bench.tree() / BENCHMARKS
    if not script.is_file():
        return unverified(f"there is no {BENCHMARKS}", "write one; it prints JSON: name -> seconds")
    last = _last_release(bench)
    if last is None:
        return unverified("no earlier release is kept here", "from the next release on it is")
    rooms = {"before": CleanRoom(bench.scratch / "before").make(), "after": _room_of(bench)}
    files = sorted((last / "dist").glob("*.whl"))
    wheels = [str(path) for path in files if fits_here(path.name)]
    needs_torch = any(package.torch for package in bench.workspace.packages)
    if needs_torch:
        rooms["before"].install(f"torch=={bench.workspace.train.torch[0]}", *wheels)
    else:
        rooms["before"].install(*wheels)
    seconds: dict[str, dict[str, list[float]]] = {}
    for _ in range(_ROUNDS):
        for which, room in rooms.items():
            done = room.run(str(script))
            if done.returncode:
                return _broken(f"{BENCHMARKS} ({which})", done)
            for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                seconds.setdefault(name, {}).setdefault(which, []).append(float(value))
    return _compared(seconds)


def _compared(seconds: Mapping[str, Mapping[str, list[float]]]) -> Finding:
    lines, slower = [], []
    for name, sides in sorted(seconds.items()):
        if len(sides) < 2:
            lines.append(f"{name}: only {next(iter(sides))} the last release has it")
            continue
        ratio = statistics.median(
            after / before for before, after in zip(sides["before"], sides["after"], strict=True)
        )
        lines.append(f"{name}: {ratio:.3f} of the last release's time")
        if ratio > _SLOWER:
            slower.append(name)
    compared = sum(len(sides) == 2 for sides in seconds.values())
    if not compared:
        return Finding(Outcome.FAIL, "no benchmark runs on both releases; write one that does")
    if slower:
        return Finding(
            Outcome.FAIL,
            f"slower than the last release by more than {_SLOWER - 1:.0%}: {', '.join(slower)}; "
            "`torchyard release bisect` finds the commit",
            tuple(lines),
        )
    return Finding(
        Outcome.PASS,
        f"{compared} benchmarks, none slower than the last release by more than {_SLOWER - 1:.0%}",
        tuple(lines),
    )


def try_reverse(gate: Gate, cell: str, bench: Bench) -> Finding:
    """Run a released plugin's tests, from its tag, with what it requires out of the candidate."""
    train = bench.workspace.train
    if not train.previous:
        return unverified(
            "there is no release before this one", "from the next release on there is"
        )
    package = train.package(cell)
    last = _last_release(bench)
    wheel = (
        next(iter(sorted((last / "dist").glob(f"{package.stem}-*.whl"))), None) if last else None
    )
    if wheel is None:
        return unverified(
            f"no wheel of {cell} of {train.previous} is kept here",
            f"put the release's folder back into {bench.workspace.state.folder}",
        )
    needed = [name for name in bench.workspace.requirements(cell) if name != cell]
    room = bench.room(bench.workspace.requirements(cell))
    source = room.folder / "released"
    bench.workspace.git.export(train.previous, source)
    command = ("pytest", f"{train.previous}:{package.folder}/tests")
    try:
        room.install(str(wheel), *bench.pins(*needed), "pytest", overlay=bench.overlay)
    except InstallError as error:
        return Finding(
            Outcome.FAIL,
            f"the released {wheel.name} cannot be installed beside this candidate; widen the range "
            "that the candidate's packages are pinned with, or call the release a breaking one",
            tuple(error.text.splitlines()),
            command,
        )
    done = room.run("-m", "pytest", "-q", str(source / package.folder / "tests"))
    lines = tuple(done.stdout.splitlines()[-_KEPT_LINES:])
    files = tuple(name for name in bench.files_of(cell) if not name.startswith(package.stem))
    if done.returncode:
        return Finding(
            Outcome.FAIL,
            f"tests of the released {wheel.name} fail with this candidate (pytest ended with "
            f"{done.returncode}); correct the candidate, or deprecate first what they use",
            lines,
            command,
            files,
        )
    return Finding(
        Outcome.PASS,
        f"the tests of the released {wheel.name} pass: {lines[-1]}",
        lines,
        command,
        files,
    )


def _room_of(bench: Bench) -> CleanRoom:
    room = bench.room(bench.packages)
    room.install(*bench.pins(*bench.packages), overlay=bench.overlay)
    return room


def _last_release(bench: Bench) -> Path | None:
    """Return the folder of the candidate that became the last release, if it is kept here."""
    tag = bench.workspace.train.previous
    if not tag:
        return None
    version = str(Version(tag))
    kept = [path for path in released_folders(bench.workspace) if path.parent.name == version]
    return kept[0] if kept else None


def _output_of_the_last(bench: Bench, name: str) -> Path | None:
    folder = _last_release(bench)
    path = folder / "kept" / name if folder else None
    return path if path is not None and path.is_file() else None


def _broken(what: str, done: subprocess.CompletedProcess[str]) -> Finding:
    lines = tuple((done.stderr or done.stdout).splitlines()[-_KEPT_LINES:])
    return Finding(Outcome.FAIL, f"{what} ended with {done.returncode}; see its last lines", lines)
