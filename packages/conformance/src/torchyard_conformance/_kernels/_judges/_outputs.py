"""Laws of outputs: values, shapes and dtypes, and no aliasing of other memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_conformance._kernels._case import Case, forms, last_word
from torchyard_conformance._kernels._cases._recurrent import gradients_of
from torchyard_conformance._kernels._kernel import Kernel
from torchyard_conformance._kernels._ruler import compare
from torchyard_conformance._kernels._tensors import laid, mapped, named, same_bits
from torchyard_conformance._outcome import NotSupported, Violated

__all__ = [
    "has_the_stated_form",
    "leaves_memory_alone",
    "matches_reference",
    "records_gradients",
    "writes_lists",
]

# The tensor that a call writes to.
_WRITTEN = "out"


def matches_reference(kernel: Kernel, case: Case) -> dict[str, float]:
    """Hold every output to its bound, or to equality where the contract has one answer."""
    return compare(case, kernel.run(case, kernel.accept(case)))


def writes_lists(kernel: Kernel, case: Case) -> dict[str, float]:
    """Look at the tensors that were to be written rather than at what was returned."""
    given = kernel.accept(case)
    returned = kernel.run(case, given)
    written = case.named_outputs(given[0].out)
    for name, tensor in written.items():
        if name not in returned or returned[name].data_ptr() != tensor.data_ptr():
            raise Violated(f"{name}: returns another tensor than the one to write to")
    return compare(case, written)


def records_gradients(kernel: Kernel, case: Case) -> dict[str, float]:
    """Hold what torch records of a differentiable forward to the bounds of naive steps."""
    given = kernel.accept(case)
    if not getattr(kernel.function, "differentiable", False):
        raise NotSupported("does not say that torch differentiates what it does")
    try:
        found = gradients_of(kernel.function, given)
    except RuntimeError as error:
        raise Violated(f"says that torch differentiates what it does: {error}"[:300]) from error
    return compare(case, found)


def has_the_stated_form(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare shapes and dtypes with those that the op's rule for fake tensors states."""
    given = kernel.accept(case)
    found = kernel.run(case, given)
    stated = forms(case, given)
    if len(found) != len(stated):
        raise Violated(f"expected {len(stated)} outputs, got {', '.join(found)}")
    for (name, tensor), form in zip(found.items(), stated, strict=True):
        own = (tuple(tensor.shape), tensor.dtype)
        if own != form:
            raise Violated(
                f"{name}: expected {list(form[0])} in {form[1]}, as the op's fake kernel says, got "
                f"{list(own[0])} in {own[1]}"
            )
        if case.contiguous and not tensor.is_contiguous():
            raise Violated(f"{name}: expected contiguous, got strides {tensor.stride()}")
        if tensor.device.type != kernel.device:
            raise Violated(f"{name}: expected a tensor on {kernel.device}, got {tensor.device}")
        if tensor.requires_grad:
            raise Violated(f"{name}: expected a tensor without history, got one that needs grad")
    return {"outputs": float(len(found))}


def leaves_memory_alone(kernel: Kernel, case: Case) -> dict[str, float]:
    """Put every tensor inside a larger allocation of its own, and compare all of it afterwards."""
    given: Any = mapped(kernel.accept(case), lambda _, tensor: laid(tensor, "offset"))
    tensors = dict(named(given))
    before = {name: _memory(tensor).clone() for name, tensor in tensors.items()}
    outputs = kernel.run(case, given)
    for name, tensor in tensors.items():
        written = last_word(name) == _WRITTEN
        after = _memory(tensor)
        if written:
            after = after.clone()
            place = slice(tensor.storage_offset(), tensor.storage_offset() + tensor.numel())
            after[place] = before[name][place]
        if not same_bits(before[name], after):
            raise Violated(f"writes {'beside' if written else 'to'} {name}")
        for output, made in outputs.items():
            if not written and made.numel() and _address(made) == _address(tensor):
                raise Violated(f"{output} lies in the memory of {name}")
    return {"tensors": float(len(tensors))}


def _memory(tensor: Tensor) -> Tensor:
    """Return all elements of the memory that a tensor lies in."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.as_strided(tensor, (size,), (1,), 0)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
