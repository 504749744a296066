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
import operator
from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from torchyard_programs._callable import called
from torchyard_programs._captured import is_readable_on
from torchyard_programs._errors import ProgramError
from torchyard_programs._vocabulary import WORD_OF, WORD_OF_METHOD, WORDS

# Everything of a program lies on the query's device, so where a new tensor should lie says nothing.
# `inplace` is refused where it is true.
_IGNORED_KEYWORDS: Final = frozenset({"device", "inplace", "layout", "memory_format", "pin_memory"})


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
        ProgramError: the function does something that cannot be recorded, captures a tensor of
            another device, or does not take the inputs.
    """
    tape = _Tape(role, device, noun, typed, anywhere)
    values = [Value(tape, name, dtype) for name, dtype in inputs]
    with _Recorder():
        result = called(function, role, [name for name, _ in inputs], values)
    for part in result if isinstance(result, (tuple, list)) else (result,):
        if not isinstance(part, _RESULTS):
            raise ProgramError(
                f"{role}: expected a function that returns a tensor or a number, got "
                f"{'None' if part is None else type(part).__name__}"
            )
    lines = [*tape.lines, tape.encode(result)]
    return "\n".join(lines), tape.captured


def result_count(text: str) -> int | None:
    """Return how many results a program has; None where its function returned no tuple.

    Plain Python, as the tracer is.
    """
    # Lines are JSON, and of a tuple alone the last is a list.
    if text[-1] != "]":
        return None
    last = text.rpartition("\n")[2]
    # No item of a tuple holds a comma.
    return last.count(",") + 1 if len(last) > 2 else 0


class _Tape:
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

    def record(self, word: str, args: Any, kwargs: Any) -> Value:
        if kwargs.get("inplace"):
            raise ProgramError(
                f"{self.role}: {word} with inplace=True works in place, which cannot be recorded; "
                f"leave inplace out"
            )
        encoded = ",".join([self.encode(arg) for arg in args])
        keywords = ",".join(
            [
                f'"{name}":{self.encode(value)}'
                for name, value in kwargs.items()
                if name not in _IGNORED_KEYWORDS
            ]
        )
        self.lines.append(f'["{word}",[{encoded}],{{{keywords}}}]')
        return Value(self, f"%{len(self.lines) - 1}", None)

    def encode(self, item: Any) -> str:
        if isinstance(item, Value):
            return f'"{item.reference}"'
        if isinstance(item, Tensor):
            return f'"{self._capture(item)}"'
        if item is None:
            return "null"
        if item is True or item is False:
            return "true" if item else "false"
        if isinstance(item, (int, torch.SymInt)):
            return str(int(item))
        if isinstance(item, (float, torch.SymFloat)):
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

    def _capture(self, tensor: Tensor) -> str:
        for index, known in enumerate(self.captured):
            if known is tensor:
                return f"${index}"
        if not self.anywhere and not is_readable_on(tensor, self.device):
            raise ProgramError(
                f"{self.role}: expected captured tensors on {self.device}, where it is computed, "
                f"got one {list(tensor.shape)} on {tensor.device}; move it there"
            )
        self.captured.append(tensor)
        return f"${len(self.captured) - 1}"


class Value:
    """A stand-in for one element inside a function that is recorded.

    It records what is done to it: operators, torch functions, tensor methods, and the indexing of
    captured tensors by it.
    """

    def __init__(self, tape: _Tape, reference: str, dtype: torch.dtype | None) -> None:
        self.tape = tape
        self.reference = reference
        self._dtype = dtype

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _record(func, args, kwargs or {})

    @property
    def dtype(self) -> torch.dtype:
        if self._dtype is None:
            raise ProgramError(
                f"{self.tape.role}: the dtype of an intermediate value is not known while the "
                f"function is recorded; read {self.tape.typed}, or convert with .to(dtype)"
            )
        return self._dtype

    @property
    def device(self) -> torch.device:
        return self.tape.device

    @property
    def shape(self) -> torch.Size:
        return torch.Size(())

    @property
    def ndim(self) -> int:
        return 0

    def dim(self) -> int:
        return 0

    def size(self) -> torch.Size:
        return torch.Size(())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in WORDS:
            word = name
        elif name[-1] != "_" and callable(getattr(Tensor, name, None)):
            word = f"torch.Tensor.{name}"
        else:
            _refuse_attribute(self.tape, name)
        tape = self.tape

        def method(*args: Any, **kwargs: Any) -> Value:
            return tape.record(word, (self, *args), kwargs)

        return method

    def __add__(self, other: Any) -> Value:
        return self.tape.record("add", (self, other), {})

    def __radd__(self, other: Any) -> Value:
        return self.tape.record("add", (other, self), {})

    def __sub__(self, other: Any) -> Value:
        return self.tape.record("sub", (self, other), {})

    def __rsub__(self, other: Any) -> Value:
        return self.tape.record("sub", (other, self), {})

    def __mul__(self, other: Any) -> Value:
        return self.tape.record("mul", (self, other), {})

    def __rmul__(self, other: Any) -> Value:
        return self.tape.record("mul", (other, self), {})

    def __truediv__(self, other: Any) -> Value:
        return self.tape.record("div", (self, other), {})

    def __rtruediv__(self, other: Any) -> Value:
        return self.tape.record("div", (other, self), {})

    def __floordiv__(self, other: Any) -> Value:
        return self.tape.record("floor_divide", (self, other), {})

    def __rfloordiv__(self, other: Any) -> Value:
        return self.tape.record("floor_divide", (other, self), {})

    def __mod__(self, other: Any) -> Value:
        return self.tape.record("remainder", (self, other), {})

    def __rmod__(self, other: Any) -> Value:
        return self.tape.record("remainder", (other, self), {})

    def __pow__(self, other: Any) -> Value:
        return self.tape.record("pow", (self, other), {})

    def __rpow__(self, other: Any) -> Value:
        return self.tape.record("pow", (other, self), {})

    def __and__(self, other: Any) -> Value:
        return self.tape.record("bitwise_and", (self, other), {})

    def __rand__(self, other: Any) -> Value:
        return self.tape.record("bitwise_and", (other, self), {})

    def __or__(self, other: Any) -> Value:
        return self.tape.record("bitwise_or", (self, other), {})

    def __ror__(self, other: Any) -> Value:
        return self.tape.record("bitwise_or", (other, self), {})

    def __xor__(self, other: Any) -> Value:
        return self.tape.record("bitwise_xor", (self, other), {})

    def __rxor__(self, other: Any) -> Value:
        return self.tape.record("bitwise_xor", (other, self), {})

    def __lshift__(self, other: Any) -> Value:
        return self.tape.record("bitwise_left_shift", (self, other), {})

    def __rshift__(self, other: Any) -> Value:
        return self.tape.record("bitwise_right_shift", (self, other), {})

    def __lt__(self, other: Any) -> Value:
        return self.tape.record("lt", (self, other), {})

    def __le__(self, other: Any) -> Value:
        return self.tape.record("le", (self, other), {})

    def __gt__(self, other: Any) -> Value:
        return self.tape.record("gt", (self, other), {})

    def __ge__(self, other: Any) -> Value:
        return self.tape.record("ge", (self, other), {})

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self.tape.record("eq", (self, other), {})

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self.tape.record("ne", (self, other), {})

    __hash__ = None  # type: ignore[assignment]

    def __matmul__(self, other: Any) -> Value:
        return self.tape.record("torch.matmul", (self, other), {})

    def __rmatmul__(self, other: Any) -> Value:
        return self.tape.record("torch.matmul", (other, self), {})

    def __neg__(self) -> Value:
        return self.tape.record("neg", (self,), {})

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return self.tape.record("abs", (self,), {})

    def __invert__(self) -> Value:
        return self.tape.record("bitwise_not", (self,), {})

    def __getitem__(self, index: Any) -> Value:
        return self.tape.record("getitem", (self, index), {})

    def __bool__(self) -> NoReturn:
        raise ProgramError(
            f"{self.tape.role}: a decision in Python (if, and, or, not, min, max) on "
            f"{self.tape.noun} cannot be recorded; write it with torch.where, &, |, ~, "
            f"torch.minimum or torch.maximum"
        )

    def __int__(self) -> NoReturn:
        _refuse_number(self.tape)

    def __float__(self) -> NoReturn:
        _refuse_number(self.tape)

    def __index__(self) -> NoReturn:
        _refuse_number(self.tape)


# What a function may return, in a tuple or a list too.
_RESULTS: Final = (Value, Tensor, bool, int, float, torch.SymInt, torch.SymFloat)


class _Recorder(TorchFunctionMode):
    """Record torch functions that touch a Value; leave the others alone.

    Indexing a plain tensor by a Value reaches a mode only: torch looks for overrides in the tensor
    and not in its index.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _tape_of(args) is None and _tape_of(list((kwargs or {}).values())) is None:
            return func(*args, **(kwargs or {}))
        return _record(func, args, kwargs or {})


def _record(func: Any, args: Any, kwargs: Any) -> Any:
    tape = _tape_of(args)
    if tape is None:
        tape = _tape_of(list(kwargs.values()))
    assert tape is not None
    name = func.__name__
    word = WORD_OF_METHOD.get(name) if name[:2] == "__" else WORD_OF.get(func)
    if word is None and func is operator.getitem:
        word = "getitem"  # Dynamo spells the indexing of a module's parameter so
    if word is None:
        word = _general_name(tape.role, func)
    return tape.record(word, args, kwargs)


def _general_name(role: str, func: Any) -> str:
    """Return the dotted name of a torch function outside of the vocabulary.

    Such a function is not pointwise, or not known to be: the program is then evaluated under vmap.
    """
    name = func.__name__
    if name[-1] == "_" and name[:2] != "__":
        raise ProgramError(
            f"{role}: {name} works in place, which cannot be recorded; use its functional form"
        )
    if getattr(torch, name, None) is func:
        return f"torch.{name}"
    if getattr(Tensor, name, None) is func:
        return f"torch.Tensor.{name}"
    if getattr(functional, name, None) is func:
        return f"torch.nn.functional.{name}"
    raise ProgramError(
        f"{role}: {name} cannot be recorded; expected a function of torch, a method of Tensor or a "
        f"function of torch.nn.functional"
    )


def _tape_of(item: Any) -> _Tape | None:
    if isinstance(item, Value):
        return item.tape
    if isinstance(item, (tuple, list)):
        for part in item:
            tape = _tape_of(part)
            if tape is not None:
                return tape
    return None


def _refuse_attribute(tape: _Tape, name: str) -> NoReturn:
    if name.endswith("_") and not name.startswith("__"):
        raise ProgramError(
            f"{tape.role}: .{name}() works in place, which cannot be recorded; use .{name[:-1]}()"
        )
    # AttributeError, so that hasattr() and copy protocols behave.
    raise AttributeError(f"{tape.role}: {tape.noun} has no attribute {name!r} that can be recorded")


def _refuse_number(tape: _Tape) -> NoReturn:
    raise ProgramError(
        f"{tape.role}: {tape.noun} cannot become a Python number; index a tensor instead of a "
        f"list, and use torch functions instead of math"
    )
