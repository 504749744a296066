"""Laws of outputs: values, shapes and dtypes, and no aliasing of other memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchyard_attention.cases import Case
from torchyard_attention.contract import AttentionCall, AttentionGradients, AttentionResult
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._rulers import compare, compare_gradients, cotangents
from torchyard_conformance._attention._state import (
    changed_settings,
    changed_state,
    process_state,
)
from torchyard_conformance._outcome import NotSupported, Violated

__all__ = [
    "changes_no_state",
    "computes",
    "gradients_match_reference",
    "has_the_stated_form",
    "leaves_inputs_alone",
    "matches_reference",
    "results_stay",
    "tensors_of",
]


def matches_reference(kernel: Kernel, case: Case) -> dict[str, float]:
    """Hold every output to the bounds of a naive computation."""
    return compare(case, kernel.run(kernel.accept(case)))


def gradients_match_reference(kernel: Kernel, case: Case) -> dict[str, float]:
    """Hold every gradient to the bounds of a naive computation, with and without the lse's."""
    call = kernel.accept(case)
    figures = {}
    for with_lse in (True, False):
        out, lse, grad_out, grad_lse = cotangents(case, with_lse).to(kernel.device)
        if with_lse:
            # Gradients come with any strides.
            grad_out = grad_out.transpose(1, 2).contiguous().transpose(1, 2)
        grads = kernel.gradients(call, out, lse, grad_out, grad_lse)
        _check_captured(call, grads)
        found = compare_gradients(case, with_lse, grads)
        figures.update({f"{name}{'' if with_lse else '_alone'}": x for name, x in found.items()})
    return figures


def computes(
    kernel: Kernel, case: Case, call: AttentionCall
) -> AttentionResult | AttentionGradients:
    """Run whichever half the kernel is, on a call of the case's shapes."""
    if kernel.is_backward:
        return kernel.gradients(call, *cotangents(case, True).to(kernel.device))
    return kernel.run(call)


def tensors_of(result: AttentionResult | AttentionGradients) -> dict[str, Tensor]:
    """Return a result's tensors by name."""
    if isinstance(result, AttentionResult):
        named = {"out": result.out, "lse": result.lse, "max_scores": result.max_scores}
    else:
        named = {
            "grad_query": result.query,
            "grad_key": result.key,
            "grad_value": result.value,
            **{f"grad_captured[{i}]": grad for i, grad in enumerate(result.captured)},
        }
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def has_the_stated_form(kernel: Kernel, case: Case) -> dict[str, float]:
    """Look at shapes, dtypes, devices, strides, and that there is what was asked for."""
    call = kernel.accept(case)
    result = computes(kernel, case, call)
    if isinstance(result, AttentionGradients):
        _check_captured(call, result)
        forms = _gradient_forms(call)
    else:
        forms = _output_forms(call)
    found = tensors_of(result)
    for name, (shape, dtype) in forms.items():
        if name not in found:
            raise Violated(f"{name}: asked for, and missing")
        tensor = found.pop(name)
        form = (tuple(tensor.shape), tensor.dtype, tensor.device.type)
        if form != (shape, dtype, kernel.device):
            raise Violated(
                f"{name}: expected {list(shape)} in {dtype} on {kernel.device}, got "
                f"{list(form[0])} in {form[1]} on {form[2]}"
            )
        if not tensor.is_contiguous():
            raise Violated(f"{name}: expected contiguous, got strides {tensor.stride()}")
        if tensor.requires_grad:
            raise Violated(f"{name}: expected a tensor without history, got one that needs grad")
    if found:
        raise Violated(f"{', '.join(found)}: returned, and not asked for")
    return {}


def _output_forms(call: AttentionCall) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    rows = tuple(call.query.shape[:3])
    wide = torch.promote_types(call.query.dtype, torch.float32)
    forms = {"out": ((*rows, call.value.shape[3]), call.query.dtype)}
    forms.update({name: (rows, wide) for name in ("lse", "max_scores") if getattr(call, name)})
    return forms


def _gradient_forms(call: AttentionCall) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    named = {"grad_query": call.query, "grad_key": call.key, "grad_value": call.value}
    captured = call.score_mod.captured if call.score_mod is not None else ()
    for index, wanted in enumerate(call.captured_grad):
        if wanted:
            named[f"grad_captured[{index}]"] = captured[index]
    return {name: (tuple(t.shape), t.dtype) for name, t in named.items()}


def _check_captured(call: AttentionCall, grads: AttentionGradients) -> None:
    if not any(call.captured_grad):
        if any(grad is not None for grad in grads.captured):
            raise Violated("captured: returned gradients that the call does not ask for")
        return
    got = [grad is not None for grad in grads.captured]
    if got != list(call.captured_grad):
        raise Violated(f"captured: asked for {list(call.captured_grad)}, returned {got}")


class _Buffer(bytearray):
    """Memory whose end can be seen; a bytearray itself knows no weak references."""


def _owned(tensor: Tensor) -> tuple[Tensor, object]:
    """Return a copy of a tensor and what lives exactly as long as its memory."""
    if tensor.device.type != "cpu" or tensor.numel() == 0:
        # Of other devices' memory only the tensor itself can be followed.
        copy = tensor.clone()
        return copy, copy
    buffer = _Buffer(tensor.numel() * tensor.element_size())
    copy = torch.frombuffer(buffer, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)
    return copy, buffer


def _own(call: AttentionCall) -> tuple[AttentionCall, list[weakref.ref[Any]]]:
    owners: list[weakref.ref[Any]] = []

    def own(tensor: Tensor) -> Tensor:
        copy, owner = _owned(tensor)
        owners.append(weakref.ref(owner))
        return copy

    mod: Any = call.score_mod
    if mod is not None:
        mod = replace(mod, captured=tuple(own(tensor) for tensor in mod.captured))
    owned = replace(
        call, query=own(call.query), key=own(call.key), value=own(call.value), score_mod=mod
    )
    return owned, owners


def _inputs(call: AttentionCall) -> Iterator[tuple[str, Tensor]]:
    yield from (("query", call.query), ("key", call.key), ("value", call.value))
    captured = call.score_mod.captured if call.score_mod is not None else ()
    yield from ((f"captured[{index}]", tensor) for index, tensor in enumerate(captured))
    if call.mask is not None:
        for name in ("kv_num_blocks", "kv_indices", "bits", "first_partial"):
            yield f"mask.{name}", getattr(call.mask, name)


def leaves_inputs_alone(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare the inputs' bits, look for shared memory, and for inputs that outlive their call."""
    if case.layout != "contiguous":
        raise NotSupported("memory is followed for contiguous inputs")
    call, owners = _own(kernel.accept(case))
    before = {name: tensor.clone() for name, tensor in _inputs(call)}
    result = computes(kernel, case, call)
    for name, tensor in _inputs(call):
        if not _same_bits(before[name], tensor):
            raise Violated(f"changes {name}")
        for output, made in tensors_of(result).items():
            if made.numel() and _overlap(made, tensor):
                raise Violated(f"{output} lies in the memory of {name}")
    names = [name for name, _ in _inputs(call)]
    # Names of the loop hold the last tensors.
    del call, tensor, made
    if any(owner() is not None for owner in owners):
        gc.collect()
    kept = [name for name, owner in zip(names, owners, strict=False) if owner() is not None]
    if kept:
        raise Violated(f"keeps {', '.join(kept)} after the call")
    return {}


def _overlap(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.cpu().nan_to_num(0.125), other.cpu().nan_to_num(0.125))


def results_stay(kernel: Kernel, case: Case) -> dict[str, float]:
    """Keep one result while another call of the same shapes is computed."""
    call = kernel.accept(case)
    first = tensors_of(computes(kernel, case, call))
    kept = {name: tensor.clone() for name, tensor in first.items()}
    other = replace(call, query=call.query * 0.5, value=call.value - 1.0)
    second = tensors_of(computes(kernel, case, other))
    for name, tensor in first.items():
        if tensor.numel() and _overlap(tensor, second[name]):
            raise Violated(f"{name}: two calls return the same memory")
        if not _same_bits(kept[name], tensor):
            raise Violated(f"{name}: the next call changes it")
    return {}


def changes_no_state(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare the process's settings before and after a call."""
    call = kernel.accept(case)
    computes(kernel, case, call)  # what is imported once may add filters of warnings
    before = process_state()
    computes(kernel, case, call)
    changed = changed_state(before) or changed_settings()
    if changed:
        raise Violated(f"a call changes {changed}")
    return {}
