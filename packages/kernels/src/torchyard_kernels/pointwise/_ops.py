"""The ops that torch sees: ``torch.ops.torchyard_kernels.pointwise`` and ``.pointwise_``.

The choice of implementation is made inside of the op, from dtypes and the program only, so eager
calls, compiled graphs, exported programs and fake tensors take the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from torchyard import registry
from torchyard.dispatch import FastPath, decision_cache
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.pointwise._arguments import Arguments, device_of, operand_of
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


def compute(
    arguments: Arguments,
    captured: Sequence[Tensor],
    text: str,
    out: tuple[Sequence[Tensor], ...] = (),
    use: str | None = None,
) -> tuple[list[Tensor], ...]:
    """Compute a call; see the contract.

    Groups of equal operands are computed together, by what the registry decides for them.
    """
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
        # Before anybody is asked: what is not pointwise is the caller's to know.
        result_dtypes(text, inputs, traits)
        cache = decision_cache()
        kernel: PointwiseKernel = registry().resolve(POINTWISE, request, use=use)
        call = PointwiseCall(
            request,
            tuple([item[group] for group in groups] for item in items),
            tuple(captured),
            tuple([result[group] for group in groups] for result in out),
        )
        if out:
            check_results(call)
        # After the checks: the fast path does not repeat them for calls of this kind.
        if use is None:
            FAST_PATH.enable(cache, kernel, request, key=(text, bool(out)))
        results = kernel(call)
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


def _arguments(
    tensors: list[Tensor], numbers: list[float] | None, form: str, groups: int
) -> Arguments:
    return Arguments(tensors, numbers or [], form, groups)


def _pointwise(
    tensors: list[Tensor],
    captured: list[Tensor] | None,
    numbers: list[float] | None,
    form: str,
    groups: int,
    text: str,
    use: str,
) -> list[Tensor]:
    arguments = _arguments(tensors, numbers, form, groups)
    results = (
        None
        if use
        else FAST_PATH.try_call((text, False), arguments.passed(), tuple(captured or ()), None)
    )
    if results is None:
        with torch.no_grad():
            results = compute(arguments, stored(captured), text, use=use or None)
    return [tensor for result in results for tensor in result]


def _pointwise_fake(
    tensors: list[Tensor],
    captured: list[Tensor] | None,
    numbers: list[float] | None,
    form: str,
    groups: int,
    text: str,
    use: str,
) -> list[Tensor]:
    items = _arguments(tensors, numbers, form, groups).items()
    traits = tuple(operand_of(tensor) for tensor in captured or ())
    results: list[list[Tensor]] = []
    for group in range(groups):
        given = [item[group] for item in items]
        dtypes = result_dtypes(text, tuple(operand_of(item) for item in given), traits)
        present = [item for item in (*given, *(captured or ())) if isinstance(item, Tensor)]
        shape, device = broadcast(present), device_of(present)
        results.append([present[0].new_empty(shape, dtype=d, device=device) for d in dtypes])
    return [tensor for result in zip(*results, strict=True) for tensor in result]


def _pointwise_in_place(
    out: list[Tensor],
    tensors: list[Tensor],
    captured: list[Tensor] | None,
    numbers: list[float] | None,
    form: str,
    groups: int,
    text: str,
    use: str,
) -> None:
    arguments = _arguments(tensors, numbers, form, groups)
    written = tuple(out[start : start + groups] for start in range(0, len(out), groups))
    if use or not FAST_PATH.try_call(
        (text, True), arguments.passed(), tuple(captured or ()), written
    ):
        with torch.no_grad():
            compute(arguments, stored(captured), text, written, use or None)
    count_write(written)


def _pointwise_in_place_fake(
    out: list[Tensor],
    tensors: list[Tensor],
    captured: list[Tensor] | None,
    numbers: list[float] | None,
    form: str,
    groups: int,
    text: str,
    use: str,
) -> None:
    items = _arguments(tensors, numbers, form, groups).items()
    for group in range(groups):
        given = (*(item[group] for item in items), *(captured or ()), *out[group::groups])
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
