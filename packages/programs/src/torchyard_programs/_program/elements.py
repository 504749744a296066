"""Programs of elements: a text for each result, half precisions computed as float32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch

from torchyard import arguments
from torchyard_programs._program.inference import Input, Traits
from torchyard_programs._program.program import Reference
from torchyard_programs._program.rewriting import results_of, rewritten
from torchyard_programs._program.typed import TypedProgram, typed_program
from torchyard_programs._program.validation import inputs_of, traits_of

__all__ = ["ElementPrograms", "element_programs"]

_HALVES: Final = (torch.float16, torch.bfloat16)
# What gives a half precision where all inputs are float32.
_ROUNDING: Final = frozenset({"bfloat16", "getitem", "half", "to", "type_as"})


@dataclass(frozen=True, slots=True)
class ElementPrograms:
    """The results of a program, each as a program of its own.

    Attributes:
        results: dtype of each result, by torch's promotion.
        texts: the program of each.
        inputs: of the programs, half precisions as float32; where elements of captured tensors are
            inputs, those follow as ``c0``, ``c1`` and so on.
        captured: of the tensors that the programs index; empty where their elements are inputs.
    """

    results: tuple[torch.dtype, ...]
    texts: tuple[str, ...]
    inputs: tuple[Input, ...]
    captured: Traits


def element_programs(
    text: str, inputs: tuple[Input, ...], captured: Traits, *, elements: bool
) -> ElementPrograms:
    """Return a program in the form in which a kernel computes elements of tensors.

    Half precisions are computed as float32. A conversion to one rounds; what comes after it is
    float32 again.

    Args:
        text: the program.
        inputs: its inputs, in the dtypes and dimensions that torch's promotion sees.
        captured: dtype and number of dimensions of each captured tensor.
        elements: whether captured tensors are read whole, one element for each element of the
            inputs; otherwise by index.

    Raises:
        TypeError, ValueError: an argument does not fit the program; names it.
    """
    of = "element_programs"
    arguments.text(of, "text", text)
    arguments.boolean(of, "elements", elements)
    return _programs(text, inputs_of(of, inputs), traits_of(of, captured), elements)


@lru_cache(maxsize=1024)
def _programs(
    text: str, inputs: tuple[Input, ...], captured: Traits, elements: bool
) -> ElementPrograms:
    results = _promoted(typed_program(text, inputs, captured), inputs, captured)
    given = tuple(Input(item.name, _wide(item.dtype), item.ndim) for item in inputs)
    renamed: dict[str, str] = {}
    traits: Traits = captured
    if elements:
        renamed = {f"${number}": f"c{number}" for number in range(len(captured))}
        given += tuple(
            Input(f"c{number}", _wide(dtype), ndim) for number, (dtype, ndim) in enumerate(captured)
        )
        traits = ()
    # What a program reads whole of them is one number.
    widened = tuple(
        f"${number}"
        for number, (dtype, ndim) in enumerate(traits)
        if dtype in _HALVES and ndim == 0
    )
    wide = rewritten(text, renamed, widened=widened)
    rounded = frozenset(
        f"%{int(step.result[1:]) - len(widened)}"
        for step in typed_program(wide, given, traits).steps
        if step.dtype in _HALVES and step.word in _ROUNDING
    )
    texts = results_of(rewritten(text, renamed, widened=widened, rounded=rounded))
    return ElementPrograms(results, texts, given, traits)


def _wide(dtype: Any) -> Any:
    return torch.float32 if dtype in _HALVES else dtype


def _promoted(
    program: TypedProgram, inputs: tuple[Input, ...], captured: Traits
) -> tuple[torch.dtype, ...]:
    """Return the dtype of each result; a number has torch's default for it."""
    found: dict[str, Any] = {step.result: step.dtype for step in program.steps}
    found.update((item.name, item.dtype) for item in inputs)
    found.update((f"${number}", dtype) for number, (dtype, _) in enumerate(captured))
    result = program.result
    dtypes = []
    for one in result if isinstance(result, tuple) else (result,):
        dtype = found[one.name] if isinstance(one, Reference) else type(one)
        dtypes.append(dtype if isinstance(dtype, torch.dtype) else torch.as_tensor(dtype(1)).dtype)
    return tuple(dtypes)
