"""``foreach_map``, which returns new tensors, and ``foreach_map_``, which writes to its lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from torchyard import arguments as checks
from torchyard_kernels.pointwise._arguments import Arguments, MapCall
from torchyard_kernels.pointwise._ops import FAST_PATH, compute, count_write
from torchyard_kernels.pointwise._recordings import cached_recording, recorded
from torchyard_kernels.pointwise._transforms import refuse_gradient
from torchyard_kernels.pointwise._validation import parse_arguments
from torchyard_programs import result_count as count_results

__all__ = ["foreach_map", "foreach_map_", "write"]

# A repeated call does not read the program again.
_known_count = lru_cache(maxsize=1024)(count_results)


def foreach_map(fn: Callable[..., Any], *lists: Any, implementation: str | None = None) -> Any:
    """Return what a pointwise function gives for the tensors of some lists.

    ``fn`` is called once, on stand-ins for one element of each argument, and recorded. One kernel
    computes it for all groups: the first tensors of all lists, the second, and so on. Nothing is
    compiled, and functions of one structure share their preparation. bfloat16 and
    float16 are computed as float32 and rounded once. Differentiable in every tensor, any number of
    times; works under torch.compile(fullgraph=True), torch.export and with fake tensors.

    As torch's foreach_map, but lists must be of one length, and not as torch._foreach_*: tensors of
    a group broadcast, and dtypes promote, as they do where ``fn`` is called on tensors.

    Args:
        fn: takes one argument per list; returns a value or a tuple of values. Uses torch's
            pointwise functions, operators, and tensors that it captures, which broadcast with every
            group.
        lists: at least one list of tensors or of numbers; and tensors or numbers, which all groups
            share. Captured numbers are part of the structure: what changes from call to call is
            better an argument.
        implementation: demand this one, by name; an error where it does not support the call.

    Returns:
        A list of new contiguous tensors; a tuple of lists where ``fn`` returns a tuple.

    Raises:
        TypeError, ValueError: an argument does not fit; names it.
        torchyard_programs.ProgramError: ``fn`` cannot be recorded, or is not pointwise.
        torchyard.UnsupportedError: no implementation supports the call; shows every candidate.
    """
    if implementation is not None:
        checks.text("foreach_map", "implementation", implementation)
    dynamo = is_dynamo_compiling()
    known = None if dynamo else cached_recording(fn, "foreach_map", len(lists))
    text, captured = recorded(fn, "foreach_map", lists) if known is None else known
    several = _result_count(text)
    if not dynamo and implementation is None:
        found = FAST_PATH.try_call((text, False), lists, captured, None)
        if found is not None:
            return found[0] if several is None else found
    arguments = parse_arguments("foreach_map", lists)
    if not arguments.groups:
        return [] if several is None else tuple([[] for _ in range(several)])
    results = compute(MapCall(arguments, text, captured, implementation=implementation or ""))
    return results[0] if several is None else results


def foreach_map_(
    fn: Callable[..., Any],
    *lists: Any,
    out: Sequence[Sequence[Tensor]] | None = None,
    implementation: str | None = None,
) -> None:
    """Do what :func:`foreach_map` does, and write the results to lists.

    Args:
        fn, lists, implementation: as of :func:`foreach_map`.
        out: of each result the tensors to write to, one per group, of the group's broadcast shape;
            None: the first lists, as many as there are results. A tensor may be an argument of its
            own group; with those of other groups it shares no memory. What is written is converted
            to its dtype, of the same kind or a wider one.

    Raises:
        As :func:`foreach_map`; InPlaceGradientError: a tensor to write to, or one that is read,
        requires a gradient while gradients are recorded.
    """
    if implementation is not None:
        checks.text("foreach_map_", "implementation", implementation)
    known = None if is_dynamo_compiling() else cached_recording(fn, "foreach_map_", len(lists))
    text, captured = recorded(fn, "foreach_map_", lists) if known is None else known
    if out is not None:
        checks.sequence("foreach_map_", "out", out)
    else:
        out = _first_lists(lists, _result_count(text) or 1)
    write(text, captured, lists, out, implementation)


def write(
    text: str,
    captured: tuple[Tensor, ...],
    lists: tuple[Any, ...],
    out: Sequence[Sequence[Tensor]],
    implementation: str | None = None,
) -> None:
    """Compute a program and write its results.

    Args:
        text, captured: the program.
        lists, out, implementation: as of :func:`foreach_map_`.

    Raises:
        As :func:`foreach_map_`.
    """
    plain = not is_dynamo_compiling() and implementation is None
    if plain and FAST_PATH.try_call((text, True), lists, captured, tuple(out)) is not None:
        count_write(out)
        return
    arguments = parse_arguments("foreach_map_", lists)
    _check_out(arguments, captured, out, _result_count(text) or 1)
    if arguments.groups:
        compute(MapCall(arguments, text, captured, tuple(out), implementation or ""))


def _first_lists(lists: Sequence[Any], count: int) -> Sequence[Sequence[Tensor]]:
    first = lists[:count]
    if len(first) < count or not all(_is_list_of_tensors(item) for item in first):
        raise ValueError(
            f"foreach_map_: argument 0: expected the first {count} arguments to be lists of "
            "tensors, since the function returns as many results; pass out= to write to others"
        )
    return first


def _is_list_of_tensors(item: Any) -> bool:
    return isinstance(item, list | tuple) and all(isinstance(part, Tensor) for part in item)


def _check_out(
    arguments: Arguments,
    captured: Sequence[Tensor],
    out: Sequence[Sequence[Tensor]],
    count: int,
) -> None:
    if len(out) != count:
        raise ValueError(
            f"foreach_map_: out: expected {count} lists, one per result, got {len(out)}"
        )
    for result in out:
        if not _is_list_of_tensors(result):
            raise TypeError(
                f"foreach_map_: out: expected a list of tensors for each result, got "
                f"{type(result).__name__}"
            )
        if len(result) != arguments.groups:
            raise ValueError(
                f"foreach_map_: out: expected lists of {arguments.groups}, as the arguments "
                f"are, got {len(result)}"
            )
        for tensor in result:
            checks.tensor("foreach_map_", "out", tensor)
            if any(
                step == 0 and size > 1
                for size, step in zip(tensor.shape, tensor.stride(), strict=True)
            ):
                raise ValueError(
                    "foreach_map_: out: expected tensors with memory for each element, got "
                    f"{list(tensor.shape)} with the strides {list(tensor.stride())}; clone it"
                )
    if torch.is_grad_enabled():
        tensors = [*arguments.tensors, *captured, *(tensor for result in out for tensor in result)]
        if any(tensor.requires_grad for tensor in tensors):
            refuse_gradient()


def _result_count(text: str) -> int | None:
    # Dynamo warns of a cache.
    return count_results(text) if is_dynamo_compiling() else _known_count(text)
