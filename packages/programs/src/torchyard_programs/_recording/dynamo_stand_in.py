"""Stand-ins while Dynamo traces: tensors of no dimension.

A size that torch.compile left open is a number to Dynamo alone. Compared with an object of ours it
gives False without asking the object, and with a tensor a step of the graph. So the inputs are
tensors there, a mode sees every function of theirs, and what it does to them is recorded beside.
Nothing uses what the graph computes of them, and a backend leaves it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchyard_programs._errors import ProgramError
from torchyard_programs._program.functions import gather
from torchyard_programs._recording.stand_in import word_of
from torchyard_programs._recording.writes import run_without_writes

if TYPE_CHECKING:
    from torchyard_programs._recording.tracer import Tape

__all__ = ["GraphRecorder", "in_graph", "standing"]

# What tells of a tensor no value: its dtype, its shape.
_TELLING: Final = frozenset({"__get__", "dim", "ndimension", "size", "numel", "is_floating_point"})

# What Dynamo makes of augmented assignments, and the functions that give a new value instead.
_AUGMENTED: Final = {
    "add_": "add",
    "sub_": "sub",
    "mul_": "mul",
    "div_": "div",
    "floor_divide_": "floor_divide",
    "remainder_": "remainder",
    "pow_": "pow",
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "itruediv": "div",
    "ifloordiv": "floor_divide",
    "imod": "remainder",
    "ipow": "pow",
    "iand": "bitwise_and",
    "ior": "bitwise_or",
    "ixor": "bitwise_xor",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift",
}


def in_graph(inputs: tuple[tuple[str, torch.dtype | None], ...]) -> bool:
    """Return whether inputs are recorded as tensors: Dynamo traces, and their dtypes are known."""
    return torch.compiler.is_dynamo_compiling() and all(dtype is not None for _, dtype in inputs)


def standing(dtype: torch.dtype | None, device: torch.device) -> Tensor:
    """Return a tensor that stands for one element."""
    return torch.zeros((), dtype=dtype, device=device)


class GraphRecorder(TorchFunctionMode):
    """Record torch functions that touch a stand-in; leave the others alone.

    Attributes:
        refused: an error that was raised and might have been caught.
    """

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape
        self.refused: ProgramError | None = None
        # Of each augmented assignment: its name, what it was done to, and its result.
        self._augmented: list[tuple[str, str, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tape, keywords = self._tape, kwargs or {}
        if tape.standing_for(args) is None and tape.standing_for(list(keywords.values())) is None:
            return run_without_writes(tape.role, func, args, keywords)
        name = func.__name__
        if name in _TELLING:
            return func(*args, **keywords)
        target = tape.standing_for(args[0]) if args and isinstance(args[0], Tensor) else None
        if target is not None and name in _AUGMENTED:
            word = _AUGMENTED[name]
            result = getattr(torch, word)(*args, **keywords)
            made = tape.write(word, args, keywords)
            self._augmented.append((name, target, made))
            return tape.stand(made, result)
        word = word_of(tape.role, func, keywords)
        # Plain indexing by a tensor of no dimension reads its value.
        result = gather(*args) if word == "getitem" else func(*args, **keywords)
        if not isinstance(result, Tensor):
            raise ProgramError(
                f"{tape.role}: {name} of {tape.noun} gives no tensor and cannot be recorded; index "
                f"a tensor instead of a list, and use torch functions instead of math"
            )
        return tape.stand(tape.write(word, args, keywords), result)

    def check_names(self, lines: list[str]) -> None:
        """Raise ProgramError if a value was changed in place and then read by its old name.

        Dynamo spells ``x += 1`` and ``x.add_(1)`` alike. The first gives a name another value, as
        outside of a graph; the second cannot be recorded.
        """
        for name, target, made in self._augmented:
            later = lines[int(made[1:]) + 1 :]
            read = [any(f'"{item}"' in line for line in later) for item in (target, made)]
            if read[0] or not read[1]:
                raise ProgramError(
                    f"{self._tape.role}: {name} works in place, which cannot be recorded; use its "
                    f"functional form"
                )
