"""Attention's kernels run by Intel's OpenCL for the CPU: each case's errors, and the worst.

``python -m packages.triton.tests.tables.opencl``, in the environment of ``nox -s opencl``. Words
choose the cases whose names contain one of them. The exit status is 1 where an error is beyond its
bound, or a kernel does not compile.

Without the matrix instruction a product is written out element by element, so tiles are the
smallest, and heads are short: at 32 x 32 a kernel of the backward compiles in a minute. A compiler
that crashes ends its process, so cases are run in another one.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial

import torch

from packages.attention.tests.attention_calls import call_of
from packages.triton.tests.decode_calls import call_with_pages, decode_call, sequences
from torchyard_attention.contract import AttentionCall
from torchyard_attention.reference import reference_forward
from torchyard_attention.tolerance import Error, GradientRuler, Ruler
from torchyard_triton._launch import Launch, runs_by
from torchyard_triton.attention import Tiles, backward, decode, forward
from torchyard_triton.opencl import run_on_opencl

__all__ = ["CASES"]

_TILES = Tiles(rows=16, keys=16)
# Of the calls of attention's tests: dtypes, lengths that tiles do not divide, masks, blocks of odd
# sizes, groups of heads, scores, rows that see nothing, and captured tensors with gradients.
_FORWARD = (
    *("plain", "plain-half", "bfloat16", "causal", "head_dim-8", "value_dim-24", "lengths-1-70"),
    *("grouped-2", "documents", "odd-blocks", "empty-rows", "max_scores", "half-alibi"),
    *("gated-alibi", "bfloat16-bias", "relative-bias"),
)
_BACKWARD = (
    *("plain", "plain-half", "bfloat16", "causal", "head_dim-8", "grouped-2", "documents"),
    *("half-alibi", "relative-bias", "learnable-bias"),
)
_DECODE = ("one-query", "random", "half")


def _call(name: str) -> AttentionCall:
    if name != "bfloat16":
        return call_of(name)
    call = call_of("causal")
    query, key, value = (tensor.bfloat16() for tensor in (call.query, call.key, call.value))
    return replace(call, query=query, key=key, value=value)


def _forward(name: str) -> list[Error]:
    call = _call(name)
    return Ruler(call).compare(forward(call, tiles=_TILES))


def _backward(name: str) -> list[Error]:
    call = _call(name)
    result = reference_forward(call)
    assert result.lse is not None
    generator = torch.Generator().manual_seed(9)
    grad_out = torch.randn(result.out.shape, generator=generator).to(result.out.dtype)
    grad_lse = torch.randn(result.lse.shape, generator=generator)
    # Turned, the exact kernel of keys in half precision ends Intel's OpenCL compiler, in its pass
    # sycl-kernel-reduce-cross-barrier-values.
    tiles = replace(_TILES, turned=call.query.dtype == torch.float32)
    got = backward(call, result.out, result.lse, grad_out, grad_lse, tiles=tiles)
    return GradientRuler(call, grad_out, grad_lse).compare(got)


def _decode(name: str) -> list[Error]:
    call = decode_call(name)
    return Ruler(call).compare(decode(call, tiles=_TILES))


def _paged(causal: bool) -> list[Error]:
    lengths = (50, 64, 17) if causal else (50, 0, 17)
    call, whole = call_with_pages(lengths, causal=causal)
    return Ruler(whole).compare(decode(call, tiles=_TILES))


def _packed(causal: bool) -> list[Error]:
    return [
        error
        for alone, part in sequences(causal, tiles=_TILES)
        for error in Ruler(alone).compare(part)
    ]


CASES: dict[str, Callable[[], list[Error]]] = {
    **{f"forward {name}": partial(_forward, name) for name in _FORWARD},
    **{f"backward {name}": partial(_backward, name) for name in _BACKWARD},
    **{f"decode {name}": partial(_decode, name) for name in _DECODE},
    "paged alibi": partial(_paged, False),
    "paged causal": partial(_paged, True),
    "varlen": partial(_packed, False),
    "varlen causal": partial(_packed, True),
}


class _Kernels:
    """Counts launches; a table of no launch would be green and show nothing."""

    def __init__(self) -> None:
        self.launches = 0

    def __call__(self, launch: Launch) -> None:
        self.launches += 1
        run_on_opencl(launch)


def _run(name: str) -> tuple[int, list[Error]]:
    """Return how many kernels a case launched, and its errors."""
    kernels = _Kernels()
    with runs_by(kernels):
        errors = CASES[name]()
    return kernels.launches, errors


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def _chosen(words: Sequence[str]) -> Iterator[str]:
    for name in CASES:
        if not words or any(word in name for word in words):
            yield name


def main(words: Sequence[str]) -> int:
    """Run the cases; return the exit status."""
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    failed, ran, begun = [], 0, time.monotonic()
    process = _process()
    for name in _chosen(words):
        started = time.monotonic()
        try:
            launches, errors = process.submit(_run, name).result()
        except Exception as error:  # whatever the compilers raise
            failed.append(name)
            if isinstance(error, BrokenProcessPool):
                process = _process()
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        shown: dict[str, float] = {}
        for error in errors:
            output = error.name.split("[")[0]
            shown[output] = max(shown.get(output, 0.0), error.ratio)
            at = name.split()[0], output
            worst[at] = max(worst.get(at, (0.0, "")), (error.ratio, name))
        if not launches or not shown or max(shown.values()) > 1.0:
            failed.append(name)
        ran += 1
        ratios = ", ".join(f"{output} {ratio:.2f}" for output, ratio in shown.items())
        seconds = time.monotonic() - started
        print(f"{name}: {launches} kernels, {seconds:.0f} s: {ratios}", flush=True)
    process.shutdown()
    print(f"{ran} cases in {(time.monotonic() - begun) / 60:.0f} minutes; of the bound at most:")
    for (kind, output), (ratio, name) in worst.items():
        print(f"  {kind:8} {output:13} {ratio:5.2f}, of {name}")
    for name in failed:
        print(f"FAILED: {name}")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
