"""Evaluation of programs over tiles of scores, and as scalar functions.

A program in which every value is a scalar and every step is pointwise is evaluated by broadcasting:
one torch call per step over the whole tile. Any other program is evaluated under vmap over the
tile, as torch.nn.attention.flex_attention does with every one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention._mods._trace import SCORE_INPUTS
from torchyard_programs import Input, ProgramError, Traits, build, infer, is_pointwise, parse

# A program may also return a plain number.
_TensorFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class TracedMod:
    """A traced function bound to its captured tensors; the contract's ``ScoreMod``."""

    text: str
    captured: tuple[Tensor, ...]

    def pointwise(self, dtype: torch.dtype) -> bool:
        """Return whether the program is evaluated by broadcasting."""
        return _is_pointwise(self.text, dtype, _traits(self.captured))

    def apply(
        self,
        score: Tensor,
        b: Tensor,
        h: Tensor,
        q: Tensor,
        k: Tensor,
        *captured: Tensor,
    ) -> Tensor:
        """Return the modified scores of a tile; see the contract's ``ScoreMod.apply``."""
        used = captured or self.captured
        result = evaluate_tile(self.text, score, b, h, q, k, used)
        return result.to(score.dtype).expand_as(score)


def evaluate_mask(
    text: str, b: Tensor, h: Tensor, q: Tensor, k: Tensor, captured: tuple[Tensor, ...]
) -> Tensor:
    """Return which (query, key) pairs of a tile are visible: bool [B', H', Q', K']."""
    shape = (b.numel(), h.numel(), q.numel(), k.numel())
    score = torch.zeros((), device=q.device).expand(shape)
    return _visible(evaluate_tile(text, score, b, h, q, k, captured)).expand(shape)


def evaluate_mask_blocks(
    text: str, b: Tensor, h: Tensor, q: Tensor, k: Tensor, captured: tuple[Tensor, ...]
) -> Tensor:
    """Return which pairs of N separate blocks are visible: bool [N, BQ, BK].

    Args:
        text: the program.
        b, h: int64 [N]: each block's batch and head.
        q, k: int64 [N, BQ] and [N, BK]: each block's queries and keys.
        captured: the program's captured tensors.
    """
    score = torch.zeros((), device=q.device)
    shape = (*q.shape, k.shape[1])
    if _is_pointwise(text, score.dtype, _traits(captured)):
        function = _tile_function(text, score.dtype, _traits(captured))
        b, h, q, k = b.view(-1, 1, 1), h.view(-1, 1, 1), q[:, :, None], k[:, None, :]
    else:
        function = _vmapped(text, len(captured), _BLOCKS)
        score = score.expand(shape)
    result: Any = function(score, b, h, q, k, *captured)
    if not isinstance(result, Tensor):
        result = torch.as_tensor(result, device=score.device)
    return _visible(result).expand(shape)


def _visible(result: Tensor) -> Tensor:
    """Return the result of a mask's program; refuse what is not bool."""
    if result.dtype != torch.bool:
        raise ProgramError(
            f"mask_mod: expected bool, True where a query sees a key, got {result.dtype}; compare, "
            f"as in `mask[q_idx, kv_idx] != 0`; what is to be added to scores, such as 0 and -inf, "
            f"belongs in a score_mod"
        )
    return result


def evaluate_tile(
    text: str,
    score: Tensor,
    b: Tensor,
    h: Tensor,
    q: Tensor,
    k: Tensor,
    captured: tuple[Tensor, ...],
) -> Tensor:
    """Evaluate a program over a tile; the result broadcasts to the tile's shape."""
    if _is_pointwise(text, score.dtype, _traits(captured)):
        function = _tile_function(text, score.dtype, _traits(captured))
        b, h, q = b.view(-1, 1, 1, 1), h.view(-1, 1, 1), q.view(-1, 1)
    else:
        function = _vmapped(text, len(captured), _TILE)
    result: Any = function(score, b, h, q, k, *captured)
    if not isinstance(result, Tensor):
        return torch.as_tensor(result, device=score.device)
    return result


@lru_cache(maxsize=1024)
def scalar_function(text: str) -> _TensorFunction:
    """Return the program as a function of (score, b, h, q, k, *captured), all of them scalars.

    One function object per text, so that it is compiled once.
    """
    return build(parse(text), SCORE_INPUTS)


def infer_dtypes(text: str, dtype: torch.dtype, traits: Traits) -> dict[str, torch.dtype]:
    """Return the dtype that each step of a program gives on scalars.

    Args:
        text: the program.
        dtype: the score's.
        traits: dtype and number of dimensions of each captured tensor.
    """
    steps = infer(parse(text), score_inputs(dtype), traits)
    return {name: step.dtype for name, step in steps.items()}


def score_inputs(dtype: torch.dtype, ndim: int = 0) -> tuple[Input, ...]:
    """Return the inputs of a program, for scores of a dtype."""
    return tuple(Input(name, dtype if name == "s" else torch.int64, ndim) for name in SCORE_INPUTS)


def _traits(captured: tuple[Tensor, ...]) -> Traits:
    return tuple((tensor.dtype, tensor.ndim) for tensor in captured)


@lru_cache(maxsize=1024)
def _is_pointwise(text: str, dtype: torch.dtype, traits: Traits) -> bool:
    return is_pointwise(parse(text), score_inputs(dtype), traits)


@lru_cache(maxsize=1024)
def _tile_function(text: str, dtype: torch.dtype, traits: Traits) -> _TensorFunction:
    """Build the broadcasting evaluation.

    torch promotes scalars and tiles differently. The program means scalars, so where a tile's step
    would come out in another dtype, it is cast to the scalar's.
    """
    program = parse(text)
    scalars = infer(program, score_inputs(dtype), traits)
    tiles = infer(program, score_inputs(dtype, 4), traits)
    casts = {
        name: (scalars[name].dtype,) for name in scalars if scalars[name].dtype != tiles[name].dtype
    }
    return build(program, SCORE_INPUTS, casts=casts)


# Which of (score, b, h, q, k) each nested vmap runs over, innermost first.
_Dimensions = tuple[tuple[int | None, ...], ...]
_TILE: Final[_Dimensions] = (
    (0, None, None, None, 0),
    (0, None, None, 0, None),
    (0, None, 0, None, None),
    (0, 0, None, None, None),
)
_BLOCKS: Final[_Dimensions] = (
    (0, None, None, None, 0),
    (0, None, None, 0, None),
    (0, 0, 0, 0, 0),
)


@lru_cache(maxsize=256)
def _vmapped(text: str, captured_count: int, dimensions: _Dimensions) -> _TensorFunction:
    function: Any = build(parse(text), SCORE_INPUTS, vmapped=True)
    for inputs in dimensions:
        function = torch.vmap(function, in_dims=(*inputs, *((None,) * captured_count)))
    return function  # type: ignore[no-any-return]
