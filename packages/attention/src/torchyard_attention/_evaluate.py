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

from torchyard_attention._errors import ProgramError
from torchyard_attention._program import Operation, Program, Reference, parse
from torchyard_attention._vocabulary import REVERSED, WORDS, function_of

# A program may also return a plain number.
_TensorFunction = Callable[..., Any]
_Traits = tuple[tuple[torch.dtype, int], ...]


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
    result = evaluate_tile(text, score, b, h, q, k, captured)
    return result.to(torch.bool).expand(shape)


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
    return result.to(torch.bool).expand(shape)  # type: ignore[no-any-return]


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

    One function object per text, so that whoever compiles it compiles once.
    """
    return _build(parse(text), gather="getitem", casts={})


def infer_dtypes(text: str, dtype: torch.dtype, traits: _Traits) -> dict[str, torch.dtype]:
    """Return the dtype that each step of a program gives on scalars.

    Args:
        text: the program.
        dtype: the score's.
        traits: dtype and number of dimensions of each captured tensor.
    """
    return {name: step.dtype for name, step in _infer(parse(text), dtype, traits, 0).items()}


def _traits(captured: tuple[Tensor, ...]) -> _Traits:
    return tuple((tensor.dtype, tensor.ndim) for tensor in captured)


@lru_cache(maxsize=1024)
def _is_pointwise(text: str, dtype: torch.dtype, traits: _Traits) -> bool:
    program = parse(text)
    if not all(operation.word in WORDS for operation in program.operations):
        return False
    if not all(_indexes_wholly(operation, traits) for operation in program.operations):
        return False
    return all(value.ndim == 0 for value in _infer(program, dtype, traits, 0).values())


def _indexes_wholly(operation: Operation, traits: _Traits) -> bool:
    """Return whether a step is no indexing, or one that takes one element of a captured tensor."""
    if operation.word != "getitem":
        return True
    source, index = operation.args
    indices = index if isinstance(index, tuple) else (index,)
    return (
        source.name[0] == "$"
        and len(indices) == traits[int(source.name[1:])][1]
        and all(isinstance(item, Reference | int) for item in indices)
    )


@lru_cache(maxsize=1024)
def _tile_function(text: str, dtype: torch.dtype, traits: _Traits) -> _TensorFunction:
    """Build the broadcasting evaluation.

    torch promotes scalars and tiles differently. The program means scalars, so where a tile's step
    would come out in another dtype, it is cast to the scalar's.
    """
    program = parse(text)
    scalars = _infer(program, dtype, traits, 0)
    tiles = _infer(program, dtype, traits, 4)
    casts = {
        name: scalars[name].dtype for name in scalars if scalars[name].dtype != tiles[name].dtype
    }
    return _build(program, gather="getitem", casts=casts)


def _infer(
    program: Program, dtype: torch.dtype, traits: _Traits, tile_ndim: int
) -> dict[str, Tensor]:
    """Run a program on single elements and return what each step gives.

    On the CPU, where a step takes microseconds; torch's first operation on the meta device imports
    its compiler, which takes more than a second. What fails for these values alone (a division by
    zero) is told by the meta device, which has none.
    """
    try:
        return _inferred(program, dtype, traits, tile_ndim, torch.device("cpu"))
    except (RuntimeError, IndexError):
        return _inferred(program, dtype, traits, tile_ndim, torch.device("meta"))


def _inferred(
    program: Program,
    dtype: torch.dtype,
    traits: _Traits,
    tile_ndim: int,
    device: torch.device,
) -> dict[str, Tensor]:
    shape = (1,) * tile_ndim
    values: dict[str, Any] = {}
    steps = {}
    with torch.no_grad(), _outside_of_modes():
        values["s"] = torch.ones(shape, dtype=dtype, device=device)
        values |= dict.fromkeys("bhqk", torch.ones(shape, dtype=torch.int64, device=device))
        for index, (captured_dtype, ndim) in enumerate(traits):
            values[f"${index}"] = torch.ones((1,) * ndim, dtype=captured_dtype, device=device)
        for operation in program.operations:
            result = _step(operation)(values)
            if not isinstance(result, Tensor):
                raise ProgramError(
                    f"program: expected {operation.word} to give a tensor, got "
                    f"{type(result).__name__}"
                )
            values[operation.result.name] = result
            steps[operation.result.name] = result
    return steps


def _outside_of_modes() -> Any:
    return torch.utils._python_dispatch._disable_current_modes()


def _step(operation: Operation) -> Callable[[dict[str, Any]], Any]:
    function, args = _call(operation)
    if operation.word == "getitem":
        function = _gather_any  # plain indexing by a scalar would read its value

    def run(values: dict[str, Any]) -> Any:
        kwargs = {name: _lookup(value, values) for name, value in operation.kwargs}
        return function(*(_lookup(arg, values) for arg in args), **kwargs)

    return run


def _lookup(item: Any, values: dict[str, Any]) -> Any:
    if isinstance(item, Reference):
        return values[item.name]
    if isinstance(item, tuple):
        return tuple(_lookup(part, values) for part in item)
    return item


def _call(operation: Operation) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function of a step and its arguments in the order that the function takes."""
    word, args = operation.word, operation.args
    if word in REVERSED:
        word, args = REVERSED[word], (args[1], args[0], *args[2:])
    if word in WORDS:
        return function_of(word, bool(operation.kwargs)), args
    return _general_function(word), args


def _general_function(name: str) -> Callable[..., Any]:
    function: Any = torch
    for part in name.split(".")[1:]:
        function = getattr(function, part)
    assert callable(function)
    return function  # type: ignore[no-any-return]


def _build(program: Program, gather: str, casts: dict[str, torch.dtype]) -> _TensorFunction:
    """Write a program as Python and compile that: no interpretation per call, and Dynamo reads it.

    Only names of the vocabulary and decoded constants enter the text.
    """
    names: dict[str, Any] = {"_gather": _gather}
    constants: list[Any] = []

    def spell(item: Any) -> str:
        if isinstance(item, Reference):
            return item.name.replace("%", "v").replace("$", "c")
        if isinstance(item, tuple):
            return "(" + "".join(f"{spell(part)}, " for part in item) + ")"
        constants.append(item)
        names[f"k{len(constants)}"] = item
        return f"k{len(constants)}"

    lines = []
    for index, operation in enumerate(program.operations):
        function, args = _call(operation)
        called = f"f{index}"
        names[called] = _gather if operation.word == "getitem" and gather == "index" else function
        arguments = [spell(arg) for arg in args]
        arguments += [f"{name}={spell(value)}" for name, value in operation.kwargs]
        target = spell(operation.result)
        lines.append(f"    {target} = {called}({', '.join(arguments)})")
        if operation.result.name in casts:
            lines.append(f"    {target} = {target}.to({spell(casts[operation.result.name])})")
    captured = ", ".join(f"c{index}" for index in range(_captured_count(program)))
    header = f"def program(s, b, h, q, k{', ' + captured if captured else ''}, *unused):"
    source = "\n".join([header, *lines, f"    return {spell(program.result)}"])
    exec(compile(source, "<torchyard program>", "exec"), names)
    return names["program"]  # type: ignore[no-any-return]


def _captured_count(program: Program) -> int:
    count = 0

    def visit(item: Any) -> None:
        nonlocal count
        if isinstance(item, Reference) and item.name[0] == "$":
            count = max(count, int(item.name[1:]) + 1)
        elif isinstance(item, tuple):
            for part in item:
                visit(part)

    for operation in program.operations:
        visit((operation.args, operation.kwargs))
    visit(program.result)
    return count


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
    function: Any = _build(parse(text), gather="index", casts={})
    for inputs in dimensions:
        function = torch.vmap(function, in_dims=(*inputs, *((None,) * captured_count)))
    return function  # type: ignore[no-any-return]


def _gather(source: Tensor, index: Any) -> Tensor:
    """Index a tensor by scalars in a form that vmap understands.

    Scalars index the leading dimensions; whole slices and an ellipsis may follow them.
    """
    return torch.ops.aten.index.Tensor(source, _positions(source, index))  # type: ignore[no-any-return]


def _gather_any(source: Tensor, index: Any) -> Tensor:
    """Index a tensor by scalars whose values mean nothing, and of which only dtypes matter."""
    positions = _positions(source, index)
    if all(position.dtype != torch.bool for position in positions):
        positions = [torch.zeros_like(position) for position in positions]
    return torch.ops.aten.index.Tensor(source, positions)  # type: ignore[no-any-return]


def _positions(source: Tensor, index: Any) -> list[Tensor]:
    indices = list(index) if isinstance(index, tuple) else [index]
    whole = slice(None)
    while indices and (indices[-1] is Ellipsis or indices[-1] == whole):
        indices.pop()
    for item in indices:
        if not isinstance(item, Tensor | int):
            raise ProgramError(
                f"score_mod or mask_mod: a captured tensor is indexed by {item!r}; expected "
                f"indices first and whole slices last; rearrange the tensor outside"
            )
    return [
        item
        if isinstance(item, Tensor)
        else torch.full((), item, dtype=torch.int64, device=source.device)
        for item in indices
    ]
