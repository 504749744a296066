"""The tracer: a pointwise function, recorded as a program and the tensors that it captures.

The function is called once on stand-ins for its inputs, each of which stands for one element. What
it does to them is recorded as text, and every tensor that it touches on the way becomes a captured
tensor. Nothing is computed, and only plain Python is used, so that Dynamo inlines the tracer: under
torch.compile the text becomes a constant of the graph and the captured tensors its inputs, with
their gradients.

The text holds one JSON value per line: ``[word, arguments, keywords]`` for each operation, then the
result. A string is a reference: the inputs have their names, ``%n`` is the n-th operation and
``$n`` the n-th captured tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchyard import arguments
from torchyard_programs._captured import lies_on
from torchyard_programs._errors import ProgramError
from torchyard_programs._recording.callable import called
from torchyard_programs._recording.dynamo_stand_in import GraphRecorder, in_graph, standing
from torchyard_programs._recording.stand_in import Value, record, tape_of
from torchyard_programs._recording.writes import (
    check_nothing_kept,
    refuse_write,
    run_without_writes,
)

# Everything of a program lies on the query's device, so where a new tensor should lie says nothing.
# `inplace` and `out` are refused where they say anything.
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
) -> tuple[str, list[Tensor]]:
    """Record a function as a program.

    Args:
        function: called once with a stand-in for each input, by position.
        role: its name in messages.
        inputs: the name that the program has for each input, an identifier, and what its
            ``.dtype`` shall say; None: that it is not known.
        device: what ``.device`` shall say.
        noun: what messages call a value.
        typed: what messages tell to read for a dtype.
        anywhere: whether captured tensors may lie on any device, since the caller moves them.

    Returns:
        The program's text and the captured tensors, in the program's order.

    Raises:
        ProgramError: the function does something that cannot be recorded, writes into a tensor,
            keeps a stand-in, captures a tensor of another device, or does not take the inputs.
        TypeError, ValueError: another argument is of another kind; names it.
    """
    _check(role, inputs, noun, typed)
    if type(device) is not torch.device:
        device = arguments.device("trace", "device", device)
    anywhere = arguments.boolean("trace", "anywhere", anywhere)
    tape = Tape(role, device, noun, typed, anywhere)
    recorder: _Recorder | GraphRecorder
    values: list[Any]
    if in_graph(inputs):
        values = [tape.stand(name, standing(dtype, device)) for name, dtype in inputs]
        recorder = GraphRecorder(tape)
    else:
        values = [tape.value(name, dtype) for name, dtype in inputs]
        recorder = _Recorder(role)
    with recorder:
        result = called(function, role, [name for name, _ in inputs], values)
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
    elif not torch.compiler.is_compiling():
        part = result = None
        values.clear()
        check_nothing_kept(role, noun, tape.made)
    return "\n".join(lines), tape.captured


def _check(role: object, inputs: object, noun: object, typed: object) -> None:
    """Raise where an argument of :func:`trace` is of another kind."""
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
    """Return how many results a program has; None where its function returned no tuple.

    Plain Python, as the tracer is: whether the text is a program's is told by its ends alone.
    """
    # What nearly every program ends with, first: this is asked at every call.
    if type(text) is str and text[-1:] == '"':
        return None
    if not isinstance(text, str) or text[:1] not in _STARTS:  # type: ignore[redundant-expr]
        raise arguments.wrong_kind(
            "result_count", "text", "a program's text, as trace() returns it", text
        )
    # Lines are JSON, and of a tuple alone the last is a list.
    if text[-1] != "]":
        return None
    last = text.rpartition("\n")[2]
    # No item of a tuple holds a comma.
    return last.count(",") + 1 if len(last) > 2 else 0


# How JSON of a step, a reference or a number begins.
_STARTS: Final = frozenset('["{-0123456789tf')


class Tape:
    """What was recorded so far."""

    def __init__(
        self, role: str, device: torch.device, noun: str, typed: str, anywhere: bool
    ) -> None:
        self.role = role
        self.device = device
        self.anywhere = anywhere
        self.noun = noun
        self.typed = typed
        self.lines: list[str] = []
        self.captured: list[Tensor] = []
        self.made: list[ReferenceType[Value]] = []
        self._numbers: list[tuple[Any, Tensor]] = []
        # Tensors that stand for values while Dynamo traces, and what the program calls them.
        self._stands: list[tuple[Tensor, str]] = []

    def value(self, reference: str, dtype: torch.dtype | None) -> Value:
        value = Value(self, reference, dtype)
        if not torch.compiler.is_compiling():
            self.made.append(ref(value))
        return value

    def stand(self, reference: str, tensor: Tensor) -> Tensor:
        self._stands.append((tensor, reference))
        return tensor

    def standing_for(self, item: Any) -> str | None:
        """Return what a tensor stands for, or one of a tuple's or a list's; None for any other."""
        if isinstance(item, Tensor):
            for tensor, reference in self._stands:
                if tensor is item:
                    return reference
        elif isinstance(item, (tuple, list)):
            for part in item:
                found = self.standing_for(part)
                if found is not None:
                    return found
        return None

    def record(self, word: str, args: Any, kwargs: Any) -> Value:
        return self.value(self.write(word, args, kwargs), None)

    def write(self, word: str, args: Any, kwargs: Any) -> str:
        """Write a step down, and return what the program calls its result."""
        if kwargs:
            refuse_write(self.role, word, kwargs)
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
            return f'"{self.standing_for(item) or self._capture(item)}"'
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
        """Capture a number that torch.compile or torch.export left open, as a tensor on the CPU.

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


# What a function may return, in a tuple or a list too.
_RESULTS: Final = (Value, Tensor, bool, int, float, torch.SymInt, torch.SymFloat)


class _Recorder(TorchFunctionMode):
    """Record torch functions that touch a Value; leave the others alone.

    Indexing a plain tensor by a Value reaches a mode only: torch looks for overrides in the tensor
    and not in its index.

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
    """Return whether a compiled graph or an exported program holds for other values too."""
    if not torch.compiler.is_compiling() and type(number) in (int, float):
        return False
    # Only here, since it imports sympy.
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return not has_static_value(number)
