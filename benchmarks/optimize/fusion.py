"""Compiles models with and without chosen products: ``python -m benchmarks.optimize.fusion``.

Each row is of one run, in turns: the model as it is, compiled by torch, and compiled with products
by the registry's choice. Errors are against the model in float64. Everything is compiled afresh:
graphs from torch's caches would not list their products.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from benchmarks.optimize._models import MODELS
from torchyard_compile import LinearFusion


def main() -> int:
    """Run the command; 1 where a result is further from float64 than four times torch's."""
    parser = argparse.ArgumentParser(prog="benchmarks.optimize.fusion", description=__doc__)
    parser.add_argument("models", nargs="*", default=["llama", "bert", "vit"], help="names")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--tokens", type=int, default=128, help="of each text, at most")
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    status, rows = 0, []
    dtype = getattr(torch, options.dtype)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        for name in track(options.models, "models", transient=True):
            row, good = _row(name, dtype, options.tokens, options.turns)
            rows.append(row)
            status |= not good
    print("| model | eager, ms | compiled | with LinearFusion | chosen | error | torch's |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(*rows, sep="\n")
    return status


def _row(name: str, dtype: torch.dtype, tokens: int, turns: int) -> tuple[str, bool]:
    torch.manual_seed(0)
    model, given = MODELS[name]()
    text = given.get("input_ids")
    if isinstance(text, Tensor):
        given["input_ids"] = text[:, :tokens]
    model.eval()
    with torch.no_grad():
        exact = _result(copy.deepcopy(model).double(), _cast(given, torch.float64))
        model.to(dtype)
        given = _cast(given, dtype)
        fusion = LinearFusion()
        ways: dict[str, Callable[..., Any]] = {
            "eager": model,
            "compiled": torch.compile(model),
            "fused": torch.compile(copy.deepcopy(model), backend=fusion),
        }
        errors = {way: _error(_result(run, given), exact) for way, run in ways.items()}
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(turns):
            for way in sorted(ways, reverse=bool(turn % 2)):
                start = time.perf_counter()
                ways[way](**given)
                times[way].append(time.perf_counter() - start)
    taken = {way: 1e3 * statistics.median(found) for way, found in times.items()}
    chosen = sum(site.calls for site in fusion.explain() if site.implementation)
    products = sum(site.calls for site in fusion.explain())
    row = (
        f"| {name} | {taken['eager']:.1f} | {taken['compiled']:.1f} | {taken['fused']:.1f} | "
        f"{chosen} of {products} | {errors['fused']:.1e} | {errors['compiled']:.1e} |"
    )
    return row, errors["fused"] <= 4 * max(errors["eager"], errors["compiled"])


def _cast(given: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {
        key: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for key, value in given.items()
    }


def _result(run: Callable[..., Any] | nn.Module, given: Mapping[str, Any]) -> Tensor:
    output = run(**given)
    found = output if isinstance(output, Tensor) else next(iter(output.values()))
    return found.double()


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


if __name__ == "__main__":
    sys.exit(main())
