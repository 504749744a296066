"""Which kernels give a row the same bits however many rows are computed with it.

``python -m benchmarks.prefix_reuse.invariance``. Where one does not, a beginning that was computed
by another call than the rest has other last bits than the whole, unless every prompt is computed in
equal pieces (``reuse(model, strict=True)``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor, nn

from torchyard_attention import flex_attention
from torchyard_kernels import accelerate

_ROWS: Final = 512
_PIECES: Final = (1, 7, 64, 200, 448)
_FEATURES: Final = 768


def main() -> int:
    """Print a row for each kernel and dtype."""
    print("| kernel | dtype |", " | ".join(f"{rows} rows" for rows in _PIECES), "|")
    print("| --- " * (2 + len(_PIECES)) + "|")
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        for name, run, x in _kernels(dtype):
            words = " | ".join("same" if same else "other" for same in _compared(run, x))
            print(f"| {name} | {str(dtype).removeprefix('torch.')} | {words} |", flush=True)
    return 0


def _kernels(dtype: torch.dtype) -> Iterator[tuple[str, Callable[[Tensor], Tensor], Tensor]]:
    """Yield name, function, and input whose next to last dimension has the rows."""
    x = torch.randn(_ROWS, _FEATURES, dtype=dtype)
    linear = nn.Linear(_FEATURES, 1024).to(dtype).eval()
    yield "torch.nn.functional.linear", linear, x
    packed = nn.Sequential(linear).eval()
    accelerate(packed)
    yield "accelerate, packed weights", packed, x
    if dtype == torch.bfloat16:
        for weights in ("int8", "int4"):
            quantised = nn.Sequential(nn.Linear(_FEATURES, 1024).to(dtype)).eval()
            accelerate(quantised, weights=weights)
            yield f"accelerate, {weights}", quantised, x
    yield "torch.nn.LayerNorm", nn.LayerNorm(_FEATURES).to(dtype), x
    query, key, value = torch.randn(3, 1, 8, _ROWS, 64, dtype=dtype)
    stock = nn.functional.scaled_dot_product_attention
    yield "torch's scaled_dot_product_attention", lambda rows: stock(rows, key, value), query
    yield "torchyard's flex_attention", lambda rows: flex_attention(rows, key, value), query


@torch.no_grad()
def _compared(run: Callable[[Tensor], Tensor], x: Tensor) -> Iterator[bool]:
    whole = run(x)
    for rows in _PIECES:
        yield all(
            torch.equal(run(x[..., begin : begin + rows, :]), whole[..., begin : begin + rows, :])
            for begin in (0, 64)
        )


if __name__ == "__main__":
    sys.exit(main())
