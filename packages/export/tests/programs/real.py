"""Real models exported, verified from their file, and run beside eager: a line for each form.

``python -m packages.export.tests.programs.real [--targets pt2,onnx] [--only NAME]``. Run time is
of eager's, the median of interleaved rounds in one process; a busy machine's figures mean nothing.
Ends in 1 where a model of pt2 is refused, or nothing was tried.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from packages.export.tests import attending, speech
from packages.export.tests.artifact.test_artifact import keys
from packages.export.tests.programs.speed import interleaved, timed
from torchyard_export import ExportError, export, load
from torchyard_export._tree import flatten


def models() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return what is exported, by name: functions that return arguments of export."""
    found: dict[str, Callable[[], dict[str, Any]]] = {
        name: lambda name=name: speech.calls()[name]  # type: ignore[misc]
        for name in speech.calls()
    }
    found["torchyard-attention decoder"] = attending.decoder
    found["all-MiniLM-L6-v2"] = attending.encoder
    return found


@torch.no_grad()
def tried(name: str, given: dict[str, Any], target: str, folder: Path) -> str:
    """Export a model as one form, load and verify its file, run it; return the line."""
    start = f"{name:28}{target:20}"
    try:
        made, seconds = timed(lambda: export(**given, targets=[target], trials=1))
    except ExportError as error:
        return f"{start}refused: {error.findings[0].text.splitlines()[0][:160]}"
    private, public = keys(folder, "author")
    path = made.save(folder / "model.tya", key=private)
    loaded = load(path, key=public)
    report = loaded.verify()
    stage = next(stage for stage in made.report.stages if stage.name == target)
    leaves = [
        leaf for _, leaf in flatten(dict(loaded.manifest.signature.bind(*given["args"]).arguments))
    ]
    runner = loaded.runner(target)
    times = interleaved(
        {"eager": lambda: given["model"](*given["args"]), "program": lambda: runner(leaves)}
    )
    return (
        f"{start}{stage.cases:5} calls, {stage.wrong} wrong, {stage.error:8.2e} from float64, "
        f"{stage.ratio:.2f} of the bound; verified again: {'yes' if report.passed else 'NO'}; "
        f"{path.stat().st_size:9} bytes, {seconds:6.2f} s to export, "
        f"{times['program'] / times['eager']:.2f} of eager's time"
    )


def main(words: list[str]) -> int:
    """Print the table; return whether something that pt2 takes was refused, or nothing ran."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", default="pt2,aten,onnx")
    parser.add_argument("--only", default="", help="take models whose name has this")
    given = parser.parse_args(words)
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    lines = []
    for name, make in models().items():
        if given.only not in name:
            continue
        try:
            call = make()
        except ModuleNotFoundError as error:
            print(f"{name:28}not tried: {error}; `nox -s models` installs it", flush=True)
            continue
        for target in given.targets.split(","):
            with TemporaryDirectory() as folder:
                lines.append(tried(name, call, target, Path(folder)))
            print(lines[-1], flush=True)
    wrong = [
        line
        for line in lines
        if "verified again: NO" in line or (" pt2 " in line and "refused:" in line)
    ]
    return 1 if wrong or not lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
