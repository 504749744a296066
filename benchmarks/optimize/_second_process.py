"""Applies a plan to a model, and keeps its results: ``... MODEL DTYPE FOLDER``."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import torch

from benchmarks.optimize._models import build, tensors_of
from torchyard.optimization import apply_plan


def main(name: str, dtype: str, folder: Path) -> None:
    """Read the folder's ``plan.json``, and write ``found.pt`` beside it."""
    warnings.simplefilter("ignore")
    model, given = build(name, dtype)
    begun = time.perf_counter()
    apply_plan(model, folder / "plan.json")
    with torch.no_grad():
        results = tensors_of(model(**given))
    found = {"seconds": time.perf_counter() - begun, "results": results}
    torch.save(found, folder / "found.pt")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
