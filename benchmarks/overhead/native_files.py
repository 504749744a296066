"""``python -m benchmarks native-files FOLDER [--names]``: the C++ files that a call enters.

FOLDER holds a build of ``plugins/cpu`` that counts its lines (GCC 12 or newer):

    cmake -S plugins/cpu -B FOLDER -G Ninja -DTORCHYARD_ISAS=scalar -DCMAKE_CXX_FLAGS=--coverage
        "-DCMAKE_MODULE_LINKER_FLAGS=--coverage -Wl,-u,__gcov_reset,-u,__gcov_dump" ...
    cmake --build FOLDER --target _native

A file is entered where one of its lines ran in the call. A header's inlined functions count for the
header; headers are counted apart from translation units.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.overhead.call_files import CALLS

__all__ = ["main"]

# Translation units that a call may enter.
_TARGET: Final = 6
_CASES: Final = ("masked flex_attention", "linear", "topk", "GRU")
_SYSTEM: Final = ("/usr/", "/opt/")
_PYTHON: Final = "/include/python"


@torch.no_grad()
def main(words: Sequence[str] | None = None) -> int:
    """Print the counts; return 1 where one is above what is asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks native-files", description=__doc__)
    parser.add_argument("folder", type=Path, help="the build")
    parser.add_argument("--names", action="store_true", help="print the files' names too")
    given = parser.parse_args(words)
    library = _load(given.folder)
    torch.set_num_threads(1)
    above = False
    with tempfile.TemporaryDirectory() as written:
        for case in _CASES:
            make = CALLS[case]
            # Loads and decides for another shape.
            for _ in range(2):
                make(9)()
            call = make(10)
            for kind in ("new", "repeated"):
                folder = Path(written, f"{case} {kind}".replace(" ", "_"))
                _count(library, call, folder)
                files = _entered(folder)
                units = [name for name in files if name.endswith(".cc")]
                headers = [name for name in files if not name.endswith(".cc")]
                above = above or len(units) > _TARGET
                print(f"{case}, {kind}: {len(units)} files, {len(headers)} headers")
                if given.names:
                    print(f"  {' '.join(units)}\n  {' '.join(headers)}")
    return int(above)


def _load(folder: Path) -> ctypes.CDLL:
    """Import a build's native module as the plugin's, and return it as a library."""
    found = sorted(folder.rglob("_native*.so"))
    if len(found) != 1:
        raise SystemExit(f"{folder}: expected one _native*.so, got {len(found)}; build it first")
    library = ctypes.CDLL(str(found[0]))
    if not hasattr(library, "__gcov_dump"):
        raise SystemExit(f"{found[0]}: expected a build with --coverage that exports __gcov_dump")
    import torchyard_cpu

    loader = importlib.machinery.ExtensionFileLoader("torchyard_cpu._native", str(found[0]))
    spec = importlib.util.spec_from_file_location(loader.name, found[0], loader=loader)
    assert spec is not None
    native = importlib.util.module_from_spec(spec)
    loader.exec_module(native)
    sys.modules[loader.name] = native
    vars(torchyard_cpu)["_native"] = native
    return library


def _count(library: ctypes.CDLL, call: Callable[[], Any], folder: Path) -> None:
    """Write how often each line runs in a call."""
    folder.mkdir()
    # Where the library writes, beneath the path that it was compiled in.
    os.environ["GCOV_PREFIX"] = str(folder)
    getattr(library, "__gcov_reset")()
    call()
    getattr(library, "__gcov_dump")()


def _entered(folder: Path) -> list[str]:
    """Return the files of which a line ran, by the counts in a folder."""
    data = sorted(folder.rglob("*.gcda"))
    for counted in data:
        # Beside the counts, where gcov looks for the notes that the compiler made.
        notes = Path("/") / counted.relative_to(folder).with_suffix(".gcno")
        counted.with_suffix(".gcno").symlink_to(notes)
    made = folder / "reports"
    made.mkdir()
    words = ["gcov", "--json-format", "--hash-filenames", *map(str, data)]
    subprocess.run(words, cwd=made, check=True, stdout=subprocess.DEVNULL)
    found = {
        file["file"]
        for path in made.glob("*.gcov.json.gz")
        for file in json.loads(gzip.decompress(path.read_bytes()))["files"]
        if any(line["count"] for line in file["lines"])
    }
    ours = sorted(
        name.rpartition("src/native/")[2]
        for name in found
        if not name.startswith(_SYSTEM) and _PYTHON not in name
    )
    if not ours:
        raise SystemExit(f"{folder.name}: no line was counted; build with --coverage")
    return ours


if __name__ == "__main__":
    raise SystemExit(main())
