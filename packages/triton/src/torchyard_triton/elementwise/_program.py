"""``element_program``: a recorded program as one jit function of its inputs' elements."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from torchyard_programs import Input, Traits, element_programs
from torchyard_triton.lowering import LoweredProgram, lower
from torchyard_triton.lowering._modules import module_of

__all__ = ["ElementProgram", "element_program"]


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

    Args:
        text, inputs, captured, elements: as ``torchyard_programs.element_programs`` takes them.
        results: dtypes of the results; None: those of torch's promotion.

    Raises:
        UnsupportedProgramError: names what is not computed.
    """
    found = element_programs(text, inputs, captured, elements=elements)
    dtypes = (
        found.results
        if results is None
        else tuple(
            own if given is None else given
            for own, given in zip(found.results, results, strict=True)
        )
    )
    lowered = tuple(
        lower(one, found.inputs, found.captured, name=f"program{number}", result=str(dtype)[6:])
        for number, (one, dtype) in enumerate(zip(found.texts, dtypes, strict=True))
    )
    return ElementProgram(dtypes, lowered, elements)
