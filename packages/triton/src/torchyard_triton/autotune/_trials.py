"""What is measured: each kernel that has tiles of its own, and what it writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall
from torchyard_programs import trace
from torchyard_triton.attention import Tiles
from torchyard_triton.attention._backward import BackwardPasses
from torchyard_triton.attention._decode import DecodePasses
from torchyard_triton.attention._forward import ForwardPasses
from torchyard_triton.attention._launch import SCORE_INPUTS

__all__ = ["TRIALS", "Trial", "trial_call"]

_HEADS: Final = 16
_KV_HEADS: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A kernel with some tiles.

    Attributes:
        run: starts it.
        outputs: what it writes.
    """

    run: Callable[[], object]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Alibi:
    """The contract's ScoreMod of a bias that depends on the distance."""

    text: str
    captured: tuple[Tensor, ...]

    def apply(self, *arguments: Any) -> Tensor:
        raise NotImplementedError("kernels compute the program")


def trial_call(
    device: torch.device, dtype: torch.dtype, head_dim: int, length: int
) -> AttentionCall:
    """Return a call: 16 query heads on 4 key heads, ALiBi with a gradient for its slopes."""
    generator = torch.Generator().manual_seed(0)

    def drawn(heads: int) -> Tensor:
        values = torch.randn((1, heads, length, head_dim), generator=generator)
        return values.to(device, dtype)

    return AttentionCall(
        *(drawn(_HEADS), drawn(_KV_HEADS), drawn(_KV_HEADS), _alibi(device), None),
        head_dim**-0.5,
        lse=True,
        max_scores=False,
        captured_grad=(True,),
    )


def _alibi(device: torch.device) -> _Alibi:
    slopes = torch.linspace(0.01, 0.5, _HEADS, device=device)
    inputs = tuple(
        (item.name, item.dtype if isinstance(item.dtype, torch.dtype) else None)
        for item in SCORE_INPUTS
    )
    text, captured = trace(lambda s, b, h, q, k: s + slopes[h] * (k - q), "alibi", inputs, device)
    return _Alibi(text, tuple(captured))


def _forward(call: AttentionCall, tiles: Tiles) -> Trial:
    passes = ForwardPasses(call, None, None, tiles)
    return Trial(passes.launch().run, (passes.out, passes.lse))


def _decode(call: AttentionCall, tiles: Tiles) -> Trial:
    passes = DecodePasses(replace(call, query=call.query[:, :, :1]), None, None, None, tiles)
    # Parts differ with the tiles; what is merged of them does not.
    return Trial(passes.run, (passes.out, passes.lse))


def _passes(call: AttentionCall, tiles: Tiles) -> BackwardPasses:
    forward = ForwardPasses(call, None, None, Tiles(rows=32, keys=32))
    forward.run()
    passes = BackwardPasses(call, forward.out, forward.lse, call.query, None, None, tiles)
    passes.delta_launch().run()
    return passes


def _marks(call: AttentionCall) -> Tensor:
    # Never read, since nothing is masked.
    return torch.empty(1, dtype=torch.int8, device=call.query.device)


def _query_gradient(call: AttentionCall, tiles: Tiles) -> Trial:
    gradient = torch.empty_like(call.query)
    return Trial(_passes(call, tiles).query_launch(gradient, _marks(call)).run, (gradient,))


def _key_gradient(call: AttentionCall, tiles: Tiles) -> Trial:
    key, value = torch.empty_like(call.key), torch.empty_like(call.value)
    return Trial(_passes(call, tiles).key_launch(key, value, _marks(call)).run, (key, value))


def _captured_gradient(call: AttentionCall, tiles: Tiles) -> Trial:
    passes = _passes(call, tiles)
    outputs = [passes.captured_gradients()[0]]

    def run() -> None:
        outputs[0] = passes.captured_gradients()[0]

    assert outputs[0] is not None
    return Trial(run, (outputs[0],))


# By the kernel's name: a trial of it with some tiles.
TRIALS: Final[Mapping[str, Callable[[AttentionCall, Tiles], Trial]]] = MappingProxyType(
    {
        "attention_forward": _forward,
        "attention_decode": _decode,
        "attention_query_gradient": _query_gradient,
        "attention_key_gradient": _key_gradient,
        "attention_captured_gradient": _captured_gradient,
    }
)
