"""Stand-ins while Dynamo traces: 0-dimensional tensors.

A symbolic size compared with an object of ours gives False in Dynamo, without a call to the
object's ``__eq__``; compared with a tensor it becomes a node of the graph. So stand-ins are tensors
under Dynamo: a mode sees every function that is applied to them, and records it. The nodes that
Dynamo traces for them are unused, and the backend removes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchyard.torch_compat import break_graph_at_dependents, break_graph_at_writes
from torchyard_programs._errors import ProgramError
from torchyard_programs._program.functions import gather
from torchyard_programs._recording.stand_in import word_of
from torchyard_programs._recording.writes import function_name, run_without_writes

if TYPE_CHECKING:
    from torchyard_programs._recording.tracer import Tape

__all__ = ["GraphRecorder", "in_graph", "stand_in_tensor"]

# Functions that read a tensor's dtype or shape and no values.
_METADATA: Final = frozenset({"__get__", "dim", "ndimension", "size", "numel", "is_floating_point"})

# Dynamo's names of augmented assignments, and the out-of-place functions that replace them.
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
    """Return whether stand-ins are tensors: Dynamo traces, and all dtypes are known."""
    return torch.compiler.is_dynamo_compiling() and all(dtype is not None for _, dtype in inputs)


def stand_in_tensor(
    dtype: torch.dtype | None, device: torch.device, leaves: Sequence[Tensor]
) -> Tensor:
    """Return a stand-in for one element, which requires a gradient where one of ``leaves`` does."""
    stand_in = torch.zeros((), dtype=dtype, device=device)
    if dtype is None or not dtype.is_floating_point or not torch.is_grad_enabled():
        return stand_in
    for leaf in leaves:
        if leaf.requires_grad:
            return stand_in + leaf.sum().to(device, dtype)
    return stand_in


class GraphRecorder(TorchFunctionMode):
    """Record torch functions with a stand-in among their arguments; run the others.

    Attributes:
        refused: an error that was raised, and that the function might have caught.
    """

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape
        self.refused: ProgramError | None = None
        # Of each augmented assignment: its name, and the references of target and result.
        self._augmented: list[tuple[str, str, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tape, keywords = self._tape, kwargs or {}
        if tape.name_of(args) is None and tape.name_of(list(keywords.values())) is None:
            return run_without_writes(tape.role, func, args, keywords)
        name = function_name(func)
        if name in _METADATA:
            return func(*args, **keywords)
        target = tape.name_of(args[0]) if args and isinstance(args[0], Tensor) else None
        if target is not None and name in _AUGMENTED:
            word = _AUGMENTED[name]
            result = getattr(torch, word)(*args, **keywords)
            reference = tape.write(word, args, keywords)
            self._augmented.append((name, target, reference))
            return tape.add_stand_in(reference, result)
        word = word_of(tape.role, func, keywords)
        # Plain indexing by a 0-dimensional tensor reads its value.
        result = gather(*args) if word == "getitem" else func(*args, **keywords)
        if not isinstance(result, Tensor):
            raise ProgramError(
                f"{tape.role}: {name} of {tape.noun} gives no tensor and cannot be recorded; index "
                f"a tensor instead of a list, and use torch functions instead of math"
            )
        return tape.add_stand_in(tape.write(word, args, keywords), result)

    def check_captured(self) -> None:
        """Raise ProgramError, or Dynamo's error, if a captured tensor was computed from a stand-in.

        Its value would be that of the stand-in.
        """
        if self._tape.captured:
            break_graph_at_dependents(
                self._tape.stand_ins(),
                self._tape.captured,
                f"{self._tape.role}: {{name}} of {self._tape.noun} is not seen by a recording that "
                f"torch.compile traces; use a function of torch, such as torch.abs for abs",
                ProgramError,
            )

    def check_writes(self) -> None:
        """Raise ProgramError, or Dynamo's error, if an element of a tensor was assigned.

        Not every torch shows that to a TorchFunctionMode.
        """
        break_graph_at_writes(
            self._tape.stand_ins(),
            f"{self._tape.role}: setitem works in place, which cannot be recorded; use its "
            "functional form",
            ProgramError,
        )

    def check_names(self, lines: list[str]) -> None:
        """Raise ProgramError if a value was changed in place and then read by its old name.

        Dynamo calls the same function for ``x += 1`` and ``x.add_(1)``. The first rebinds a name,
        as without Dynamo; the second cannot be recorded.
        """
        for name, target, reference in self._augmented:
            later = lines[int(reference[1:]) + 1 :]
            read = [any(f'"{item}"' in line for line in later) for item in (target, reference)]
            if read[0] or not read[1]:
                raise ProgramError(
                    f"{self._tape.role}: {name} works in place, which cannot be recorded; use its "
                    f"functional form"
                )
