"""``python -m benchmarks call-files [--json]``: the files of ours that a call enters, by package.

Counts the Python files whose functions run in an eager call of a new shape, and in a repeated one,
once registry and plugins are loaded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch

import torchyard_kernels as kernels
from torchyard_attention import create_block_mask, flex_attention, masks

__all__ = ["CALLS", "files_of", "main"]

# What may be entered: of a call of a new shape, and of a repeated one.
_TARGET: Final = (12, 4)


def files_of(call: Callable[[], Any]) -> list[Path]:
    """Return the files of our packages whose functions a call runs, each once."""
    found: dict[str, None] = {}

    def entered(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and any(part.startswith("torchyard") for part in Path(name).parts):
            found[name] = None

    sys.setprofile(entered)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [Path(name) for name in found if Path(name) != Path(__file__)]


def _package(path: Path) -> str:
    return next(part for part in path.parts if part.startswith("torchyard_") or part == "torchyard")


def _attention(size: int) -> Callable[[], Any]:
    query = torch.randn(1, 2, size, 16)
    mask = create_block_mask(masks.causal, None, None, size, size, device="cpu")
    return lambda: flex_attention(query, query, query, block_mask=mask)


def _linear(size: int) -> Callable[[], Any]:
    x, weight = torch.randn(2, size), torch.randn(8, size)
    return lambda: kernels.linear(x, weight)


def _topk(size: int) -> Callable[[], Any]:
    x = torch.randn(2, size)
    return lambda: kernels.topk(x, 2)


def _gru(size: int) -> Callable[[], Any]:
    layer, x, state = kernels.nn.GRU(8, 8), torch.randn(size, 2, 8), torch.zeros(1, 2, 8)
    return lambda: layer(x, state)


def _foreach_map(size: int) -> Callable[[], Any]:
    tensors = [torch.randn(size) for _ in range(2)]
    # Another structure each time: a program's kind of operands does not depend on sizes.
    return lambda: kernels.foreach_map(_STEPS[size], tensors, tensors)


_STEPS: Final[dict[int, Callable[..., Any]]] = {
    9: lambda a, b: a + b,
    10: lambda a, b: a * b,
}
CALLS: Final[dict[str, Callable[[int], Callable[[], Any]]]] = {
    "masked flex_attention": _attention,
    "linear": _linear,
    "topk": _topk,
    "GRU": _gru,
    "foreach_map": _foreach_map,
}


@torch.no_grad()
def main(words: Sequence[str] | None = None) -> int:
    """Print the counts; return 1 where one is above what is asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks call-files", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--names", action="store_true", help="print the files' names too")
    given = parser.parse_args(words)
    report: dict[str, dict[str, Any]] = {}
    for name, make in CALLS.items():
        # Loads registry, plugins and kernels, and decides for another shape.
        for _ in range(2):
            make(9)()
        call = make(10)
        # The op itself must run, so that nothing of the first call is left out.
        first = files_of(call)
        call()
        repeated = files_of(call)
        report[name] = {
            kind: {
                "files": len(files),
                "packages": dict(Counter(map(_package, files))),
                "names": [f"{_package(path)}/{path.name}" for path in files],
            }
            for kind, files in (("new", first), ("repeated", repeated))
        }
    if given.json:
        print(json.dumps(report, indent=2))
    else:
        for name, kinds in report.items():
            for kind, found in kinds.items():
                packages = ", ".join(f"{key} {count}" for key, count in found["packages"].items())
                print(f"{name}, {kind}: {found['files']} files ({packages})")
                if given.names:
                    print(f"  {' '.join(found['names'])}")
    most = zip(("new", "repeated"), _TARGET, strict=True)
    limits = dict(most)
    return int(
        any(
            found["files"] > limits[kind]
            for kinds in report.values()
            for kind, found in kinds.items()
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
