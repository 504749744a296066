"""The functions that a program's steps call, and the indexing of tensors by scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchyard_programs._errors import ProgramError
from torchyard_programs._program.program import Operation
from torchyard_programs._program.vocabulary import REVERSED, function_of, is_word


def call_of(operation: Operation) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function of a step, and its arguments in the function's order."""
    word, args = operation.word, operation.args
    if word in REVERSED:
        word, args = REVERSED[word], (args[1], args[0], *args[2:])
    if is_word(word):
        return function_of(word, bool(operation.kwargs)), args
    return _general_function(word), args


def _general_function(name: str) -> Callable[..., Any]:
    function: Any = torch
    for part in name.split(".")[1:]:
        function = getattr(function, part, None)
    if not callable(function):
        raise ProgramError(
            f"program: expected a word of the vocabulary or the dotted name of a function of "
            f"torch, got {name!r}; trace() writes such words"
        )
    return function  # type: ignore[no-any-return]


def gather(source: Tensor, index: Any) -> Tensor:
    """Index a tensor by scalars in a form that vmap supports.

    Scalars index the leading dimensions; whole slices and an ellipsis may follow them.
    """
    return torch.ops.aten.index.Tensor(source, _positions(source, index))  # type: ignore[no-any-return]


def gather_any(source: Tensor, index: Any) -> Tensor:
    """Index a tensor by scalars of arbitrary values, to infer the dtype of the result."""
    positions = _positions(source, index)
    if all(position.dtype != torch.bool for position in positions):
        positions = [torch.zeros_like(position) for position in positions]
    return torch.ops.aten.index.Tensor(source, positions)  # type: ignore[no-any-return]


def _is_whole(item: Any) -> bool:
    # Dynamo of torch 2.11 cannot compare a tensor with a slice.
    return item is Ellipsis or (isinstance(item, slice) and item == slice(None))


def _positions(source: Tensor, index: Any) -> list[Tensor]:
    indices = list(index) if isinstance(index, tuple) else [index]
    while indices and _is_whole(indices[-1]):
        indices.pop()
    for item in indices:
        if not isinstance(item, Tensor | int):
            raise ProgramError(
                f"a recorded function: a captured tensor is indexed by {item!r}; expected "
                f"indices first and whole slices last; rearrange the tensor outside"
            )
    return [
        item
        if isinstance(item, Tensor)
        else torch.full((), item, dtype=torch.int64, device=source.device)
        for item in indices
    ]
