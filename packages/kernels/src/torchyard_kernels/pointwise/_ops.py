"""The ops that torch sees: ``torch.ops.torchyard_kernels.pointwise`` and ``.pointwise_``.

The choice of implementation is made inside of the op, from dtypes and the program only, so eager
calls, compiled graphs, exported programs and fake tensors take the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from torchyard import registry
from torchyard.dispatch import FastPath, decision_cache, is_plain_call
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.pointwise._arguments import Arguments, MapCall, device_of, operand_of
from torchyard_kernels.pointwise._evaluation import broadcast, check_results, result_dtypes
from torchyard_kernels.pointwise._transforms import (
    batched,
    differentiate,
    push_forward,
    refuse_writing,
    setup_context,
)
from torchyard_kernels.pointwise.contract import (
    POINTWISE,
    Operand,
    PointwiseCall,
    PointwiseKernel,
    PointwiseRequest,
)
from torchyard_programs import stored

__all__ = ["FAST_PATH", "compute", "count_write"]

# The key is the program's text, and whether results are written to given tensors. A path takes the
# lists, the captured tensors, and those to write to, or None; it returns a tuple of lists, or True
# where it wrote. See KernelPath.
FAST_PATH: Final = FastPath(POINTWISE)

# A list of nothing is None, because an AOTInductor package hands an op no list for an empty one.
_COMMON: Final = (
    "Tensor[] tensors, Tensor[]? captured, float[]? numbers, str form, int groups, str text, "
    "str use"
)
# Result after result, each of all groups.
_NEW: Final = f"pointwise({_COMMON}) -> Tensor[]"
_IN_PLACE: Final = f"pointwise_(Tensor(a!)[] out, {_COMMON}) -> ()"


def compute(call: MapCall) -> tuple[Sequence[Tensor], ...]:
    """Return of each result the tensors of all groups, or ``call.out``, which is written to.

    From the op, or from kernels where nothing else takes part in the call.
    """
    tensors = call.tensors
    if is_plain_call(tensors) and not (
        torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    ):
        results = _computed(call)
        if call.out:
            count_write(call.out)
        return results
    if call.out:
        written = [tensor for result in call.out for tensor in result]
        OPERATORS["pointwise_"](written, *_arguments(call))
        return call.out
    return _by_result(OPERATORS["pointwise"](*_arguments(call)), call.arguments.groups)


def _by_result(tensors: list[Tensor], groups: int) -> tuple[list[Tensor], ...]:
    return tuple([list(tensors[at : at + groups]) for at in range(0, len(tensors), groups)])


def _arguments(call: MapCall) -> list[Any]:
    """Return a call as the arguments of the ops; :func:`_call` is the way back."""
    given = call.arguments
    return [
        given.tensors,
        list(call.captured) or None,
        given.numbers or None,
        given.form,
        given.groups,
        call.text,
        call.implementation,
    ]


def _call(
    tensors: list[Tensor],
    captured: list[Tensor] | None,
    numbers: list[float] | None,
    form: str,
    groups: int,
    text: str,
    use: str,
) -> MapCall:
    """Return the call of the ops' arguments."""
    arguments = Arguments(tensors, numbers or [], form, groups)
    return MapCall(arguments, text, tuple(captured or ()), implementation=use)


def _computed(call: MapCall) -> tuple[Sequence[Tensor], ...]:
    """Compute a call with the implementations that the registry chooses.

    Groups whose operands are of the same kind are computed together.
    """
    arguments, captured, text, out = call.arguments, call.captured, call.text, call.out
    items = arguments.items()
    traits = tuple(operand_of(tensor) for tensor in captured)
    kinds: dict[tuple[str, tuple[Operand, ...], tuple[str, ...]], list[int]] = {}
    for group in range(arguments.groups):
        given = [item[group] for item in items]
        tensors = [item for item in (*given, *captured) if isinstance(item, Tensor)]
        if any(tensor.shape != tensors[0].shape for tensor in tensors):
            broadcast(tensors)
        inputs = tuple([operand_of(item) for item in given])
        written = tuple([str(result[group].dtype)[6:] for result in out])
        kinds.setdefault((device_of(tensors).type, inputs, written), []).append(group)
    found: list[list[Any]] = []
    for (device, inputs, written), groups in kinds.items():
        request = PointwiseRequest(device, text, inputs, traits, written, len(groups))
        # Before the decision: a function that is not pointwise is the caller's error.
        result_dtypes(text, inputs, traits)
        cache = decision_cache()
        kernel: PointwiseKernel = registry().resolve(
            POINTWISE, request, use=call.implementation or None
        )
        part = PointwiseCall(
            request,
            tuple([item[group] for group in groups] for item in items),
            captured,
            tuple([result[group] for group in groups] for result in out),
        )
        if out:
            check_results(part)
        # After the checks: the fast path does not repeat them for calls of this kind.
        if not call.implementation:
            FAST_PATH.enable(cache, kernel, request, key=(text, bool(out)))
        with torch.no_grad():
            results = kernel(part)
        found = found or [[None] * arguments.groups for _ in results]
        for into, result in zip(found, results, strict=True):
            for group, tensor in zip(groups, result, strict=True):
                into[group] = tensor
    return tuple(found)


def count_write(out: Sequence[Sequence[Tensor]]) -> None:
    """Increment the version counters of tensors that a kernel wrote to.

    torch does not see the write, and an operation that saved one of them for its backward must.
    """
    for result in out:
        increment_version(result)


def _try_fast_path(call: MapCall) -> Any:
    if call.implementation:
        return None
    lists, out = call.arguments.passed(), call.out or None
    return FAST_PATH.try_call((call.text, bool(out)), lists, call.captured, out)


def _stored(call: MapCall) -> MapCall:
    """Return a call whose captured tensors are in memory, as the dispatcher leaves the others."""
    return replace(call, captured=stored(call.captured))


def _pointwise(*args: Any) -> list[Tensor]:
    call = _call(*args)
    results = _try_fast_path(call)
    if results is None:
        results = _computed(_stored(call))
    return [tensor for result in results for tensor in result]


def _pointwise_fake(*args: Any) -> list[Tensor]:
    call = _call(*args)
    items, captured = call.arguments.items(), call.captured
    traits = tuple(operand_of(tensor) for tensor in captured)
    results: list[list[Tensor]] = []
    for group in range(call.arguments.groups):
        given = [item[group] for item in items]
        dtypes = result_dtypes(call.text, tuple(operand_of(item) for item in given), traits)
        present = [item for item in (*given, *captured) if isinstance(item, Tensor)]
        shape, device = broadcast(present), device_of(present)
        results.append([present[0].new_empty(shape, dtype=d, device=device) for d in dtypes])
    return [tensor for result in zip(*results, strict=True) for tensor in result]


def _pointwise_in_place(out: list[Tensor], *args: Any) -> None:
    call = _call(*args)
    call = replace(call, out=_by_result(out, call.arguments.groups))
    if _try_fast_path(call) is None:
        _computed(_stored(call))
    count_write(call.out)


def _pointwise_in_place_fake(out: list[Tensor], *args: Any) -> None:
    call = _call(*args)
    items, groups = call.arguments.items(), call.arguments.groups
    for group in range(groups):
        given = (*(item[group] for item in items), *call.captured, *out[group::groups])
        device_of([item for item in given if isinstance(item, Tensor)])


OPERATORS.define(
    _NEW,
    _pointwise,
    _pointwise_fake,
    gradient=differentiate,
    setup_context=setup_context,
    jvp=push_forward,
    vmap=batched,
    called="foreach_map",
)
OPERATORS.define(
    _IN_PLACE, _pointwise_in_place, _pointwise_in_place_fake, transformed=refuse_writing
)
