"""Print the worst ratio of each output's error to its bound, over the calls of the tests.

``python -m packages.triton.tests.tables.interpreted``
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from packages.attention.tests.attention_calls import CALLS, call_of
from torchyard_attention.reference import reference_forward
from torchyard_attention.tolerance import Error, GradientRuler, Ruler
from torchyard_triton.attention import Tiles, backward, forward

__all__: list[str] = []

_TILES = Tiles(rows=32, keys=32)


def _errors(name: str) -> list[Error]:
    call = call_of(name)
    errors = Ruler(call).compare(forward(call, tiles=_TILES))
    result = reference_forward(call)
    assert result.lse is not None
    generator = torch.Generator().manual_seed(9)
    grad_out = torch.randn(result.out.shape, generator=generator).to(result.out.dtype)
    got = backward(call, result.out, result.lse, grad_out, tiles=_TILES)
    return errors + GradientRuler(call, grad_out).compare(got)


def main() -> None:
    worst: dict[str, tuple[float, str]] = {}
    for name in CALLS:
        for error in _errors(name):
            kind = error.name.split("[")[0]
            worst[kind] = max(worst.get(kind, (0.0, "")), (error.ratio, name))
    print(f"{len(CALLS)} calls")
    for kind, (ratio, name) in worst.items():
        print(f"{kind:14} {ratio:5.2f} of the bound, of {name}")


if __name__ == "__main__":
    main()
