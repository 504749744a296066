"""``element_program``: a recorded program as one jit function of its inputs' elements."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch

from torchyard_programs import Input, Reference, Traits, typed_program
from torchyard_triton.elementwise._rewriting import element_name, rewritten
from torchyard_triton.lowering import LoweredProgram, lower
from torchyard_triton.lowering._modules import module_of

__all__ = ["ElementProgram", "element_program"]

_HALVES: Final = (torch.float16, torch.bfloat16)
# What converts to a half precision.
_CONVERSIONS: Final = frozenset({"bfloat16", "half", "to", "type_as"})


@dataclass(frozen=True, slots=True)
class ElementProgram:
    """A program of elements.

    Attributes:
        results: dtype of each result.
        lowered: of each result the function of (inputs..., elements of captured tensors...,
            captured), with half precisions as float32.
        elements: whether captured tensors are inputs, and ``captured`` is empty.
    """

    results: tuple[torch.dtype, ...]
    lowered: tuple[LoweredProgram, ...]
    elements: bool

    def module(self, rest: str) -> Any:
        """Return a module of the programs and of further functions, given as text.

        In it the programs are ``program0``, ``program1`` and so on.
        """
        source = "\n\n".join([*(one.source for one in self.lowered), rest])
        return module_of(hashlib.sha256(source.encode()).hexdigest()[:24], source)


@lru_cache(maxsize=1024)
def element_program(
    text: str,
    inputs: tuple[Input, ...],
    captured: Traits,
    *,
    elements: bool = True,
    results: tuple[torch.dtype | None, ...] | None = None,
) -> ElementProgram:
    """Return a program, computed in float32 where torch would compute in half precision.

    A conversion to a half precision rounds; what comes after it is float32 again.

    Args:
        text: the program.
        inputs: its inputs, in the dtypes and dimensions that torch's promotion sees.
        captured: dtype and number of dimensions of each captured tensor.
        elements: whether captured tensors are read whole, one element for each element of the
            inputs; else by index, and the programs take them as ``lower`` has it.
        results: dtypes of the results; None: those of torch's promotion.

    Raises:
        UnsupportedProgramError: names what is not computed.
    """
    promoted = _promoted(text, inputs, captured)
    dtypes = (
        promoted
        if results is None
        else tuple(
            own if given is None else given for own, given in zip(promoted, results, strict=True)
        )
    )
    given = tuple(Input(item.name, _wide(item.dtype), item.ndim) for item in inputs)
    traits: Traits = captured
    if elements:
        given += tuple(
            Input(element_name(number), _wide(dtype), ndim)
            for number, (dtype, ndim) in enumerate(captured)
        )
        traits = ()
    rounding: set[str] = set()
    for one in rewritten(text, elements=elements):
        for step in typed_program(one, given, traits).steps:
            if step.dtype in _HALVES and step.word in _CONVERSIONS:
                rounding.add(step.result)
    texts = rewritten(text, elements=elements, rounding=frozenset(rounding))
    lowered = tuple(
        lower(one, given, traits, name=f"program{number}", result=str(dtype)[6:])
        for number, (one, dtype) in enumerate(zip(texts, dtypes, strict=True))
    )
    return ElementProgram(dtypes, lowered, elements)


def _wide(dtype: Any) -> Any:
    return torch.float32 if dtype in _HALVES else dtype


def _promoted(text: str, inputs: tuple[Input, ...], captured: Traits) -> tuple[torch.dtype, ...]:
    """Return the dtype of each result, as torch promotes; a number has torch's default for it."""
    program = typed_program(text, inputs, captured)
    found: dict[str, Any] = {step.result: step.dtype for step in program.steps}
    found.update((item.name, item.dtype) for item in inputs)
    found.update((f"${number}", dtype) for number, (dtype, _) in enumerate(captured))
    result = program.result
    dtypes = []
    for one in result if isinstance(result, tuple) else (result,):
        dtype = found[one.name] if isinstance(one, Reference) else type(one)
        dtypes.append(dtype if isinstance(dtype, torch.dtype) else torch.as_tensor(dtype(1)).dtype)
    return tuple(dtypes)
