"""The tracer: a pointwise function, recorded as a program and the tensors that it captures.

The function is called once with a stand-in for one element of each input. Operations on the
stand-ins are recorded as text, and every tensor that they read becomes a captured tensor. Nothing
is computed. The tracer is plain Python that Dynamo inlines: under torch.compile the text becomes a
constant of the graph, and the captured tensors become its inputs, with their gradients.

The text holds one JSON value per line: ``[word, arguments, keywords]`` for each operation, then the
result. A string is a reference: the inputs have their names, ``%n`` is the n-th operation and
``$n`` the n-th captured tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchyard import arguments
from torchyard_programs._captured import lies_on
from torchyard_programs._errors import ProgramError
from torchyard_programs._program.vocabulary import REVERSED
from torchyard_programs._recording.callable import call_recorded, call_uncompiled
from torchyard_programs._recording.dynamo_stand_in import GraphRecorder, in_graph, stand_in_tensor
from torchyard_programs._recording.stand_in import Value, record, tape_of
from torchyard_programs._recording.writes import (
    check_no_leak,
    refuse_write,
    run_without_writes,
)

# A program runs on one device, so the device and layout of new tensors are not recorded.
# `inplace` and `out` are refused unless they have no effect.
_IGNORED_KEYWORDS: Final = frozenset(
    {"device", "inplace", "layout", "memory_format", "out", "pin_memory"}
)


def trace(
    function: Callable[..., Any],
    role: str,
    inputs: tuple[tuple[str, torch.dtype | None], ...],
    device: torch.device,
    noun: str = "an input",
    typed: str = "an input's dtype",
    *,
    anywhere: bool = False,
    leaves: Sequence[Tensor] = (),
) -> tuple[str, list[Tensor]]:
    """Record a function as a program.

    Args:
        function: called once with a stand-in for each input, by position.
        role: its name in messages.
        inputs: the name of each input in the program, an identifier, and the dtype that its
            stand-in has; None: its dtype cannot be read.
        device: the device that stand-ins have.
        noun: the word for a value in messages.
        typed: what messages recommend to read for a dtype.
        anywhere: whether captured tensors may be on any device, because the caller moves them.
        leaves: tensors through which gradients flow to the inputs. Dynamo follows the backward of
            a ``torch.autograd.Function`` only where one of its arguments requires a gradient, and
            else computes its forward alone, so stand-ins require one where these do.

    Returns:
        The program's text and the captured tensors, in the program's order.

    Raises:
        ProgramError: the function does something that cannot be recorded, writes into a tensor,
            keeps a stand-in, computes a value without gradients, captures a tensor of another
            device, or does not take the inputs.
        TypeError, ValueError: another argument does not fit; the message names it.
    """
    _check(role, inputs, noun, typed)
    if type(device) is not torch.device:
        device = arguments.device("trace", "device", device)
    anywhere = arguments.boolean("trace", "anywhere", anywhere)
    tape = Tape(role, device, noun, typed, anywhere)
    recorder: _Recorder | GraphRecorder
    values: list[Any]
    if in_graph(inputs):
        values = [
            tape.add_stand_in(name, stand_in_tensor(dtype, device, leaves))
            for name, dtype in inputs
        ]
        recorder = GraphRecorder(tape)
    else:
        values = [tape.value(name, dtype) for name, dtype in inputs]
        recorder = _Recorder(role)
    with recorder:
        names = [name for name, _ in inputs]
        if torch.compiler.is_compiling():
            result = call_recorded(function, role, names, values)
        else:
            result = call_uncompiled(function, role, names, values)
    if recorder.refused is not None:
        raise recorder.refused
    for part in result if isinstance(result, (tuple, list)) else (result,):
        if not isinstance(part, _RESULTS):
            raise ProgramError(
                f"{role}: expected a function that returns a tensor or a number, got "
                f"{'None' if part is None else type(part).__name__}"
            )
    lines = [*tape.lines, tape.encode(result)]
    if isinstance(recorder, GraphRecorder):
        recorder.check_names(lines)
        recorder.check_captured()
        recorder.check_writes()
    elif not torch.compiler.is_compiling():
        part = result = None
        values.clear()
        check_no_leak(role, noun, tape.values)
    return "\n".join(lines), tape.captured


def _check(role: object, inputs: object, noun: object, typed: object) -> None:
    """Raise TypeError where an argument of :func:`trace` has the wrong type."""
    for name, value in (("role", role), ("noun", noun), ("typed", typed)):
        if type(value) is not str or not value:
            arguments.text("trace", name, value)
    if not isinstance(inputs, (list, tuple)):
        raise arguments.wrong_kind("trace", "inputs", "a tuple of names and dtypes", inputs)
    names = []
    for pair in inputs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise arguments.wrong_kind("trace", "inputs", "pairs of a name and a dtype", pair)
        name, dtype = pair
        if not isinstance(name, str) or not name.isidentifier() or name in names:
            raise arguments.wrong_kind(
                "trace", "inputs", "names that are identifiers, each another", name
            )
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise arguments.wrong_kind("trace", "inputs", "a torch.dtype or None", dtype)
        names.append(name)


def result_count(text: str) -> int | None:
    """Return how many results a program has; None where its function did not return a tuple.

    Plain Python, as the tracer is: only the ends of the text are examined.
    """
    # Nearly every program ends so, and every call asks.
    if type(text) is str and text[-1:] == '"':
        return None
    if not isinstance(text, str) or text[:1] not in _STARTS:  # type: ignore[redundant-expr]
        raise arguments.wrong_kind(
            "result_count", "text", "a program's text, as trace() returns it", text
        )
    # The last line is a JSON list only if the function returned a tuple.
    if text[-1] != "]":
        return None
    last = text.rpartition("\n")[2]
    # No item of a tuple contains a comma.
    return last.count(",") + 1 if len(last) > 2 else 0


# First characters of the JSON of a step, a reference or a number.
_STARTS: Final = frozenset('["{-0123456789tf')


class Tape:
    """The recording so far: the steps' text and the captured tensors."""

    def __init__(
        self, role: str, device: torch.device, noun: str, typed: str, anywhere: bool
    ) -> None:
        self.role = role
        self.device = device
        self.anywhere = anywhere
        self.noun = noun
        self.typed = typed
        # Where the caller computes no gradients, the function may do without too. Recordings are
        # cached of functions alone that name no class and no context manager.
        self._gradients = torch.is_grad_enabled()
        self.lines: list[str] = []
        self.captured: list[Tensor] = []
        self.values: list[ReferenceType[Value]] = []
        self._numbers: list[tuple[Any, Tensor]] = []
        # While Dynamo traces: the stand-in tensors and their names in the program.
        self._stand_ins: list[tuple[Tensor, str]] = []

    def value(self, reference: str, dtype: torch.dtype | None) -> Value:
        value = Value(self, reference, dtype)
        if not torch.compiler.is_compiling():
            self.values.append(ref(value))
        return value

    def add_stand_in(self, reference: str, tensor: Tensor) -> Tensor:
        self._stand_ins.append((tensor, reference))
        return tensor

    def stand_ins(self) -> list[Tensor]:
        """Return the stand-in tensors; without Dynamo there are none."""
        return [tensor for tensor, _ in self._stand_ins]

    def name_of(self, item: Any) -> str | None:
        """Return the name of a stand-in tensor, or of the first in a tuple or list; else None."""
        if isinstance(item, Tensor):
            for tensor, reference in self._stand_ins:
                if tensor is item:
                    return reference
        elif isinstance(item, (tuple, list)):
            for part in item:
                found = self.name_of(part)
                if found is not None:
                    return found
        return None

    def record(self, word: str, args: Any, kwargs: Any) -> Value:
        return self.value(self.write(word, args, kwargs), None)

    def write(self, word: str, args: Any, kwargs: Any) -> str:
        """Append a step, and return the name of its result."""
        if self._gradients and not torch.is_grad_enabled():
            raise ProgramError(
                f"{self.role}: {word} is computed without gradients, inside of torch.no_grad() or "
                f"of the forward of a torch.autograd.Function, and programs record neither; use "
                f".detach() where no gradient flows, and torch functions, whose gradients are known"
            )
        if kwargs:
            refuse_write(self.role, word, kwargs)
        if word in REVERSED and len(args) > 1:
            word, args = REVERSED[word], (args[1], args[0], *args[2:])
        encoded = ",".join([self.encode(arg) for arg in args])
        keywords = ",".join(
            [
                f'"{name}":{self.encode(value)}'
                for name, value in kwargs.items()
                if name not in _IGNORED_KEYWORDS
            ]
        )
        self.lines.append(f'["{word}",[{encoded}],{{{keywords}}}]')
        return f"%{len(self.lines) - 1}"

    def encode(self, item: Any) -> str:
        if isinstance(item, Value):
            return f'"{item.reference}"'
        if isinstance(item, Tensor):
            return f'"{self.name_of(item) or self._capture(item)}"'
        if item is None:
            return "null"
        if item is True or item is False:
            return "true" if item else "false"
        if isinstance(item, (int, torch.SymInt)):
            if _is_dynamic(item):
                return f'"{self._capture_number(item, torch.int64)}"'
            return str(int(item))
        if isinstance(item, (float, torch.SymFloat)):
            if _is_dynamic(item):
                return f'"{self._capture_number(item, torch.get_default_dtype())}"'
            number = float(item)
            if math.isfinite(number):
                return repr(number)
            return f'{{"float":"{number}"}}'
        if isinstance(item, torch.dtype):
            return f'{{"dtype":"{str(item)[6:]}"}}'
        if isinstance(item, (tuple, list)):
            return "[" + ",".join([self.encode(part) for part in item]) + "]"
        if isinstance(item, slice):
            parts = (item.start, item.stop, item.step)
            return '{"slice":[' + ",".join([self.encode(part) for part in parts]) + "]}"
        if item is Ellipsis:
            return '{"ellipsis":true}'
        if isinstance(item, torch.device):
            return "null"
        if isinstance(item, str) and item.isidentifier():
            return f'{{"text":"{item}"}}'
        raise ProgramError(
            f"{self.role}: expected tensors, numbers, dtypes and slices as arguments of torch "
            f"functions, got {type(item).__name__}; turn it into a tensor outside of the function"
        )

    def _capture_number(self, number: Any, dtype: torch.dtype) -> str:
        """Capture a symbolic number of torch.compile or torch.export as a tensor on the CPU.

        So the text, and with it the graph, is the same for each of its values.
        """
        for known, tensor in self._numbers:
            if known is number:
                return self._capture(tensor)
        tensor = torch.full((), number, dtype=dtype, device="cpu")
        self._numbers.append((number, tensor))
        return self._capture(tensor)

    def _capture(self, tensor: Tensor) -> str:
        for index, known in enumerate(self.captured):
            if known is tensor:
                return f"${index}"
        if not self.anywhere and not lies_on(tensor, self.device):
            raise ProgramError(
                f"{self.role}: expected captured tensors on {self.device}, where it is computed, "
                f"got one {list(tensor.shape)} on {tensor.device}; move it there"
            )
        self.captured.append(tensor)
        return f"${len(self.captured) - 1}"


# What a function may return, also in a tuple or a list.
_RESULTS: Final = (Value, Tensor, bool, int, float, torch.SymInt, torch.SymFloat)


class _Recorder(TorchFunctionMode):
    """Record torch functions with a Value among their arguments; run the others.

    Only a mode sees a plain tensor indexed by a Value: torch looks for overrides in the tensor and
    not in its index.

    Attributes:
        refused: the first error that was raised. It is a TypeError, which torch's ``+=`` catches to
            try ``+`` instead.
    """

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role
        self.refused: ProgramError | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            if tape_of(args) is None and tape_of(list((kwargs or {}).values())) is None:
                return run_without_writes(self._role, func, args, kwargs or {})
            return record(func, args, kwargs or {})
        except ProgramError as error:
            self.refused = self.refused or error
            raise


def _is_dynamic(number: Any) -> bool:
    """Return whether a number is symbolic in a compiled graph or an exported program."""
    if not torch.compiler.is_compiling() and type(number) in (int, float):
        return False
    # Imported here, because it imports sympy.
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return not has_static_value(number)
