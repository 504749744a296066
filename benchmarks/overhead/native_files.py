"""``python -m benchmarks native-files FOLDER [--names]``: the C++ files that a call enters.

FOLDER is a build of ``plugins/cpu`` that counts its lines (GCC 12 or newer):

    cmake -S plugins/cpu -B FOLDER -G Ninja -DCMAKE_BUILD_TYPE=Release -DTORCHYARD_ISAS=avx2
        -DCMAKE_CXX_FLAGS=--coverage -DCMAKE_MODULE_LINKER_FLAGS=--coverage ...
    cmake --build FOLDER --target _native

Each case runs twice in processes of its own, with the call and without it. A file is entered where
one of its lines ran more often with the call. A header's inlined functions count for the header,
which is listed apart from the translation units.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch

__all__ = ["main"]

# Translation units that a call may enter.
_TARGET: Final = 6
_CASES: Final = ("masked flex_attention", "linear", "topk", "GRU")
_KINDS: Final = ("new", "repeated")
_SOURCES: Final = "src/native/"


def main(words: Sequence[str] | None = None) -> int:
    """Print the counts; return 1 where one is above what is asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks native-files", description=__doc__)
    parser.add_argument("folder", type=Path, help="the build")
    parser.add_argument("--names", action="store_true", help="print the files' names too")
    # What a process of this one runs.
    parser.add_argument("--run", nargs=3, metavar=("CASE", "KIND", "CALL"), help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.run is not None:
        case, kind, call = given.run
        _run(_module(given.folder), case, kind, call == "yes")
        return 0
    above = False
    for case in _CASES:
        for kind in _KINDS:
            files = sorted(_entered(given.folder, case, kind))
            units = [name for name in files if name.endswith(".cc")]
            headers = [name for name in files if not name.endswith(".cc")]
            above = above or len(units) > _TARGET
            print(f"{case}, {kind}: {len(units)} files, {len(headers)} headers")
            if given.names:
                print(f"  {' '.join(units)}\n  {' '.join(headers)}")
    return int(above)


def _module(folder: Path) -> Path:
    found = sorted(folder.rglob("_native*.so"))
    if len(found) != 1:
        raise SystemExit(f"{folder}: expected one _native*.so, got {len(found)}; build it first")
    return found[0]


@torch.no_grad()
def _run(module: Path, case: str, kind: str, with_call: bool) -> None:
    """Make the calls that come before, and the call itself or not."""
    import torchyard_cpu

    loader = importlib.machinery.ExtensionFileLoader("torchyard_cpu._native", str(module))
    spec = importlib.util.spec_from_file_location(loader.name, module, loader=loader)
    assert spec is not None
    native = importlib.util.module_from_spec(spec)
    loader.exec_module(native)
    sys.modules[loader.name] = native
    torchyard_cpu._native = native  # type: ignore[attr-defined]

    from benchmarks.overhead.call_files import CALLS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    make: Callable[[int], Callable[[], Any]] = CALLS[case]
    # Loads and decides; the second takes the path that repeated calls take.
    for _ in range(2):
        make(9)()
    call = make(10)
    if kind == "repeated":
        call()
    if with_call:
        call()


def _entered(folder: Path, case: str, kind: str) -> Iterator[str]:
    """Yield the files of which a line ran more often with the call than without."""
    without, within = (_counts(folder, case, kind, call) for call in ("no", "yes"))
    files = {file for file, line in within if within[file, line] > without[file, line]}
    if not files:
        raise SystemExit(f"{case}, {kind}: no line was counted; build {folder} with --coverage")
    yield from files


def _counts(folder: Path, case: str, kind: str, call: str) -> Counter[tuple[str, int]]:
    """Return how often each line of ours ran in a process."""
    counts: Counter[tuple[str, int]] = Counter()
    with tempfile.TemporaryDirectory() as written:
        environ = os.environ | {"GCOV_PREFIX": written}
        words = ["-m", "benchmarks", "native-files", str(folder), "--run", case, kind, call]
        subprocess.run([sys.executable, *words], env=environ, check=True)
        # Beside the counts, where gcov looks for the notes that the compiler made.
        for counted in Path(written).rglob("*.gcda"):
            notes = Path("/") / counted.relative_to(written).with_suffix(".gcno")
            counted.with_suffix(".gcno").symlink_to(notes)
        data = [str(path) for path in sorted(Path(written).rglob("*.gcda"))]
        made = Path(written, "gcov")
        made.mkdir()
        subprocess.run(
            ["gcov", "--json-format", "--hash-filenames", *data],
            cwd=made,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for path in made.glob("*.gcov.json.gz"):
            report = json.loads(gzip.decompress(path.read_bytes()))
            for file in report["files"]:
                _, ours, name = file["file"].rpartition(_SOURCES)
                if ours:
                    for line in file["lines"]:
                        counts[name, line["line_number"]] += line["count"]
    return counts


if __name__ == "__main__":
    raise SystemExit(main())
