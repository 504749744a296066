"""Stand-ins for elements of a recorded function's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch import Tensor
from torch.nn import functional

from torchyard_programs._errors import ProgramError
from torchyard_programs._program.vocabulary import (
    WORD_OF,
    WORD_OF_METHOD,
    WORD_OF_OPERATOR,
    WORDS,
)
from torchyard_programs._recording.writes import function_name, refuse_write

if TYPE_CHECKING:
    from torchyard_programs._recording.tracer import Tape

__all__ = ["Value", "record", "tape_of", "word_of"]


class Value:
    """A stand-in for one element inside a function that is recorded.

    It records operators, torch functions and tensor methods that are applied to it, and captured
    tensors that are indexed by it.
    """

    def __init__(self, tape: Tape, reference: str, dtype: torch.dtype | None) -> None:
        self.tape = tape
        self.reference = reference
        self._dtype = dtype

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return record(func, args, kwargs or {})

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

    # As torch's tensors do, and so as Dynamo records it: one text is one decision.
    def __radd__(self, other: Any) -> Value:
        return self.tape.record("add", (self, other), {})

    def __sub__(self, other: Any) -> Value:
        return self.tape.record("sub", (self, other), {})

    def __rsub__(self, other: Any) -> Value:
        return self.tape.record("sub", (other, self), {})

    def __mul__(self, other: Any) -> Value:
        return self.tape.record("mul", (self, other), {})

    def __rmul__(self, other: Any) -> Value:
        return self.tape.record("mul", (self, other), {})

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
        return self.tape.record("bitwise_and", (self, other), {})

    def __or__(self, other: Any) -> Value:
        return self.tape.record("bitwise_or", (self, other), {})

    def __ror__(self, other: Any) -> Value:
        return self.tape.record("bitwise_or", (self, other), {})

    def __xor__(self, other: Any) -> Value:
        return self.tape.record("bitwise_xor", (self, other), {})

    def __rxor__(self, other: Any) -> Value:
        return self.tape.record("bitwise_xor", (self, other), {})

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

    def __setitem__(self, index: Any, value: Any) -> None:
        refuse_write(self.tape.role, "setitem", {})

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


def record(func: Any, args: Any, kwargs: Any) -> Any:
    """Record a torch function that has a stand-in among its arguments."""
    tape = tape_of(args)
    if tape is None:
        tape = tape_of(list(kwargs.values()))
    assert tape is not None
    return tape.record(word_of(tape.role, func, kwargs), args, kwargs)


def word_of(role: str, func: Any, kwargs: Any) -> str:
    """Return the program's word for a torch function; refuse one that writes to a tensor."""
    name = function_name(func)
    refuse_write(role, name, kwargs)
    word = WORD_OF_METHOD.get(name) if name[:2] == "__" else WORD_OF.get(func)
    if word is None:
        word = WORD_OF_OPERATOR.get(func)  # Dynamo calls operators so, torch.export always
    return _general_name(role, func) if word is None else word


# Functions of torch that draw random numbers, with their _like and in-place forms. All names are
# listed, because Dynamo can look up a function's name but not split it.
_RANDOM: Final = frozenset(
    name + form
    for name in (
        *("alpha_dropout", "bernoulli", "dropout", "feature_alpha_dropout", "feature_dropout"),
        *("gumbel_softmax", "multinomial", "native_dropout", "normal", "poisson", "rand"),
        *("randint", "randn", "rrelu"),
    )
    for form in ("", "_", "_like")
)


def _general_name(role: str, func: Any) -> str:
    """Return the dotted name of a torch function outside of the vocabulary.

    Such a function is not pointwise, or not known to be; the program is then evaluated under vmap.
    """
    name = function_name(func)
    if name in _RANDOM:
        raise ProgramError(
            f"{role}: {name} cannot be recorded, since its numbers differ at each call; draw them "
            "before and let the function read the tensor"
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


def tape_of(item: Any) -> Tape | None:
    if isinstance(item, Value):
        return item.tape
    if isinstance(item, (tuple, list)):
        for part in item:
            tape = tape_of(part)
            if tape is not None:
                return tape
    return None


def _refuse_attribute(tape: Tape, name: str) -> NoReturn:
    if name.endswith("_") and not name.startswith("__"):
        raise ProgramError(
            f"{tape.role}: .{name}() works in place, which cannot be recorded; use .{name[:-1]}()"
        )
    # AttributeError, so that hasattr() and copy protocols behave.
    raise AttributeError(f"{tape.role}: {tape.noun} has no attribute {name!r} that can be recorded")


def _refuse_number(tape: Tape) -> NoReturn:
    raise ProgramError(
        f"{tape.role}: {tape.noun} cannot become a Python number; index a tensor instead of a "
        f"list, and use torch functions instead of math"
    )
