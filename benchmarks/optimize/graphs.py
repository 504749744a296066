"""Compiles attention with and without rerouted graphs: ``python -m benchmarks.optimize.graphs``.

Each row is of one run, in turns: the function as it is, compiled by torch, and compiled with
``GraphReroute``. Errors are against the function in float64. Everything is compiled afresh.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from rich.progress import track
from torch import Tensor
from torch.nn import functional

from benchmarks.optimize._turns import milliseconds
from torchyard_compile import GraphReroute

_HEADS, _SIZE = 8, 64


def _written(query: Tensor, key: Tensor, value: Tensor, added: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / _SIZE**0.5 + added
    return functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ value


def _causal(query: Tensor, key: Tensor, value: Tensor, _: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def _masked(query: Tensor, key: Tensor, value: Tensor, added: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=added)


FORMS: Final[dict[str, Callable[..., Tensor]]] = {
    "written out, with a mask": _written,
    "sdpa, is_causal": _causal,
    "sdpa, attn_mask": _masked,
}


def main() -> int:
    """Run the command; 1 where a result is further from float64 than four times torch's."""
    parser = argparse.ArgumentParser(prog="benchmarks.optimize.graphs", description=__doc__)
    parser.add_argument("forms", nargs="*", default=list(FORMS), help="what is compiled")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--positions", type=int, nargs="*", default=[512, 2048])
    parser.add_argument("--backward", action="store_true", help="with the gradients of all inputs")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    status, rows = 0, []
    dtype = getattr(torch, options.dtype)
    cases = [(form, size) for form in options.forms for size in options.positions]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        for form, size in track(cases, "forms", transient=True):
            row, good = _row(form, size, dtype, options.backward, options.turns)
            rows.append(row)
            status |= not good
    print("| form | positions | eager, ms | compiled | rerouted | by | error | torch's |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    print(*rows, sep="\n")
    return status


def _row(form: str, size: int, dtype: torch.dtype, backward: bool, turns: int) -> tuple[str, bool]:
    torch.manual_seed(0)
    torch.compiler.reset()
    drawn = [torch.randn(1, _HEADS, size, _SIZE, dtype=torch.float64) for _ in range(3)]
    added = torch.zeros(size, size, dtype=torch.float64)
    added.masked_fill_(torch.ones(size, size).triu(1).bool(), torch.finfo(dtype).min)
    function, reroute = FORMS[form], GraphReroute()

    def given(of: torch.dtype) -> list[Tensor]:
        return [*(tensor.to(of).requires_grad_(backward) for tensor in drawn), added.to(of)]

    exact = _results(function, given(torch.float64), backward)
    inputs = given(dtype)
    ways: dict[str, Callable[..., Any]] = {
        "eager": function,
        "compiled": torch.compile(lambda *tensors: function(*tensors)),
        "rerouted": torch.compile(lambda *tensors: function(*tensors), backend=reroute),
    }
    errors = {way: _error(_results(run, inputs, backward), exact) for way, run in ways.items()}
    calls = {way: partial(_results, run, inputs, backward) for way, run in ways.items()}
    taken = milliseconds(calls, turns)
    chosen = {site.implementation or f"torch: {site.reason}" for site in reroute.explain()}
    row = (
        f"| {form} | {size} | {taken['eager']:.1f} | {taken['compiled']:.1f} | "
        f"{taken['rerouted']:.1f} | {', '.join(sorted(chosen))} | {errors['rerouted']:.1e} | "
        f"{errors['compiled']:.1e} |"
    )
    return row, errors["rerouted"] <= 4 * max(errors["eager"], errors["compiled"])


def _results(run: Callable[..., Any], given: list[Tensor], backward: bool) -> list[Tensor]:
    out = run(*given)
    return [out, *(torch.autograd.grad(out.sum(), given[:3]) if backward else ())]


def _error(found: list[Tensor], exact: list[Tensor]) -> float:
    return max(
        float((one.detach().double() - true.detach()).norm() / true.detach().norm())
        for one, true in zip(found, exact, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
