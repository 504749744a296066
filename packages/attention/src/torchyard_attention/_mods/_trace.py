"""Recording of score_mods and mask_mods as programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_programs import ProgramError, result_count
from torchyard_programs import trace as trace_function

SCORE_INPUTS: Final = ("s", "b", "h", "q", "k")
MASK_INPUTS: Final = ("b", "h", "q", "k")

# The program that leaves the score as it is.
IDENTITY: Final = '"s"'

# The programs of `q >= k` and of `k <= q`.
CAUSAL: Final = frozenset({'["ge",["q","k"],{}]\n"%0"', '["le",["k","q"],{}]\n"%0"'})


def trace(
    function: Callable[..., Any],
    role: str,
    inputs: tuple[str, ...],
    score_dtype: torch.dtype,
    device: torch.device,
    *,
    anywhere: bool = False,
    leaves: Sequence[Tensor] = (),
) -> tuple[str, list[Tensor]]:
    """Record a function as a program.

    Args:
        function: a score_mod or mask_mod, in torch.nn.attention.flex_attention's form.
        role: its name in messages.
        inputs: the references that it is called with.
        score_dtype: what ``score.dtype`` returns.
        device: what ``.device`` returns.
        anywhere: whether captured tensors may be on any device, since the caller moves them.
        leaves: what the scores are computed of.

    Returns:
        The program's text and the captured tensors, in the program's order.

    Raises:
        ProgramError: the function does something that cannot be recorded.
    """
    typed = tuple([(name, score_dtype if name == "s" else torch.int64) for name in inputs])
    text, captured = trace_function(
        function,
        role,
        typed,
        device,
        noun="a score or an index",
        typed="score.dtype",
        anywhere=anywhere,
        leaves=leaves,
    )
    if result_count(text) is not None:
        raise ProgramError(f"{role}: expected a function that returns one value, got a tuple")
    return text, captured


# What makes a tensor of another's kind and reads none of its values.
_OF_THE_KIND: Final = frozenset({"new_ones", "new_zeros", "ones_like", "zeros_like"})


def reads(text: str, name: str) -> bool:
    """Return whether the result of a program depends on the value of an input.

    Plain Python, as the tracer is. It returns True also where a value is read and cancels out.
    """
    lines = text.split("\n")
    known = [f'"{name}"']
    for index, line in enumerate(lines[:-1]):
        if line[2 : line.index('"', 2)] in _OF_THE_KIND:
            continue
        if any(reference in line for reference in known):
            known.append(f'"%{index}"')
    return any(reference in lines[-1] for reference in known)


def lse_dtype(query: Tensor) -> torch.dtype:
    """Return the dtype of scores and of the lse: float64 for float64 inputs, else float32."""
    return torch.float64 if query.dtype == torch.float64 else torch.float32
