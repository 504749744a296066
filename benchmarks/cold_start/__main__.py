"""``python -m benchmarks.cold_start [MODEL ...] [--json FILE]``

Each start is a process of its own with an empty folder for torch's cache. A start whose result
differs from the first one's is reported, and not timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.cold_start.models import MODELS
from torchyard import child_environ

# How artifacts come into a process.
WAYS = ("none", "torch", "torchyard")


def main(words: list[str]) -> int:
    """Run the starts; return the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.cold_start")
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    rows: list[dict[str, Any]] = []
    for model in options.models or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            first = _start(model, "save", folder)
            for way in WAYS:
                found = _start(model, way, folder)
                right = found["sum"] == first["sum"]
                row = {"model": model, "way": way, "right": right, "seconds": found["seconds"]}
                rows.append({**row, "explanation": found["explanation"]})
                print(f"{model:28} {way:10} {found['seconds']:6.1f} s  {found['explanation']}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["right"] for row in rows) else 1


def _start(model: str, way: str, folder: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "benchmarks.cold_start",
            "--start",
            model,
            way,
            folder,
        ]
        done = subprocess.run(
            command,
            env=child_environ({"TORCHINDUCTOR_CACHE_DIR": cache}),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{model} {way}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _run(model: str, way: str, folder: str) -> None:
    """Start a model in this process; print seconds until its first result, and what was found."""
    from torchyard_cache import artifacts

    path, stock = Path(folder, "ours.bundle"), Path(folder, "torch.bin")
    begun = time.perf_counter()
    if way == "torch":
        torch.compiler.load_cache_artifacts(stock.read_bytes())
    if way == "torchyard":
        artifacts.load(path)
    result = MODELS[model]()
    seconds = time.perf_counter() - begun
    if way == "save":
        saved = torch.compiler.save_cache_artifacts()
        assert saved is not None
        stock.write_bytes(saved[0])
        artifacts.save(path)
    explanation = str(artifacts.explain()).splitlines()[0]
    total = float(result.double().abs().sum())
    print(json.dumps({"seconds": seconds, "sum": total, "explanation": explanation}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--start"]:
        _run(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
