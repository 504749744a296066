"""Artifacts that were made with this torch, verified under another: what holds, what drifted.

``python -m packages.export.tests.programs.other_torch [--torch 2.14.1] [--targets pt2,aten,...]``
makes artifacts of the models in :mod:`packages.export.tests.models.speech`, one per model and
target, makes an environment with the other torch by pip, runs ``torchyard export verify`` in it,
and prints a line for each. It ends in 1 where an artifact does not hold, or where none was made.
``--python`` names the interpreter of an environment that is there already.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import torch

from packages.export.tests.artifact.test_artifact import keys
from packages.export.tests.models.speech import calls
from torchyard_export import ExportError, export

_ROOT = Path(__file__).parents[4]
_TARGETS = "pt2,aten,onnx,aotinductor"
_NEEDED = ("numpy", "onnx", "onnxruntime", "onnxscript", "cryptography")
_PACKAGES = ("packages/core", "packages/export")


def environment(folder: Path, torch_version: str) -> Path:
    """Make an environment with a torch and this tree's packages; return its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    sources = [str(_ROOT / package) for package in _PACKAGES]
    words = ["-m", "pip", "install", "--quiet", f"torch=={torch_version}", *_NEEDED, *sources]
    subprocess.run([str(python), *words], check=True)
    return python


def made(folder: Path, targets: list[str]) -> dict[tuple[str, str], Path]:
    """Return the artifacts' files by model and target; says what is refused, and why."""
    private, _ = keys(folder, "author")
    found = {}
    for model, given in calls().items():
        for target in targets:
            try:
                artifact = export(**given, targets=[target], trials=1)
            except ExportError as error:
                print(f"{model}, {target}: not made: {error.findings[0].text.splitlines()[0]}")
                continue
            path = folder / f"{len(found)}.tya"
            found[model, target] = artifact.save(path, key=private)
    return found


def verified(python: Path, path: Path, public: Path) -> tuple[bool, list[str]]:
    """Verify a file elsewhere; return whether it holds, and what was said."""
    words = ["export", "verify", str(path), "--key", str(public), "--json"]
    # Nothing of this environment is read in the other.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(python.parent / "torchyard"), *words],
        cwd=path.parent,
        env={**kept, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
    )
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"ended in {done.returncode}"])[-1]
        return False, [last[:300]]
    if "refused" in said:
        return False, [str(said["refused"])[:300]]
    notes = [str(note) for note in said["notes"] if not str(note).startswith(("cpu:", "machine:"))]
    for stage in said["stages"]:
        notes.insert(0, f"{stage['cases']} calls, {stage['ratio']:.2f} of the bound")
        notes += [str(finding["text"])[:300] for finding in stage["findings"]]
    return bool(said["passed"]) and done.returncode == 0, notes


def main(words: list[str]) -> int:
    """Print a line per artifact; return whether one does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", default="2.14.1")
    parser.add_argument("--targets", default=_TARGETS)
    parser.add_argument("--python", type=Path)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="torchyard-other-torch-") as scratch:
        folder = Path(scratch)
        files = made(folder, given.targets.split(","))
        python = given.python or environment(folder / "venv", given.torch)
        show = "import torch; print(torch.__version__)"
        asked = subprocess.run(
            [str(python), "-c", show], check=True, capture_output=True, text=True
        )
        other = asked.stdout.strip()
        print(f"made with torch {torch.__version__}, verified with torch {other}")
        held = 0
        for (model, target), path in files.items():
            fine, notes = verified(python.absolute(), path, folder / "author.pub")
            held += fine
            print(f"{model}, {target}: {'holds' if fine else 'DOES NOT HOLD'}: {'; '.join(notes)}")
    print(f"{held} of {len(files)} hold")
    return 0 if files and held == len(files) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
