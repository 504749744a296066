"""From a program's text to a graph of typed operations.

Everything is float32 as in torch's own evaluation, and integers are exact. What would compute in
another dtype (float64, bfloat16, float16, narrow integers) is refused. Captured tensors of
bfloat16, float16 and narrow integers are read, since each of their values is one of float32 or
int32; float64 ones are not, since torch would compute in float64 from there on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import torch

from torchyard_cpu._programs.composed import BINARY, UNARY, Term, gelu_tanh, lerp, wrapped
from torchyard_cpu._programs.graph import ScoreGraph, UnsupportedProgramError
from torchyard_cpu._programs.parametric import PARAMETRIC
from torchyard_cpu._programs.vocabulary import (
    CASTS,
    COMPARISONS,
    COMPUTED,
    DEFAULTS,
    FILLS,
    FLOAT_WORDS,
    SAME,
    STORED,
    TRUTHS,
)
from torchyard_programs import Input, Reference, Step, divides_ties, typed_program

__all__ = ["Lowering", "lower"]

_INPUTS: Final = {"s": torch.float32, **dict.fromkeys("bhqk", torch.int64)}


@lru_cache(maxsize=1024)
def lower(text: str, captured: tuple[tuple[str, int], ...]) -> ScoreGraph:
    """Return a program's graph.

    Args:
        text: the program.
        captured: dtype name and number of dimensions of each captured tensor.

    Raises:
        UnsupportedProgramError: names the operation or dtype that native kernels lack.
    """
    return Lowering(text, captured).run()


class Lowering:
    """The making of a score program's graph.

    Attributes:
        computed: what values of a dtype are computed in; others are refused.
        values: reference -> number of the node, and the dtype that torch would say it has.
    """

    computed: Mapping[torch.dtype, str] = COMPUTED

    def __init__(self, text: str, captured: tuple[tuple[str, int], ...]) -> None:
        self.captured = [getattr(torch, name) for name, _ in captured]
        traits = tuple((getattr(torch, name), ndim) for name, ndim in captured)
        inputs = tuple(Input(name, dtype) for name, dtype in _INPUTS.items())
        self.program = typed_program(text, inputs, traits)
        self.graph = ScoreGraph()
        self.values: dict[str, tuple[int, Any]] = {}
        for name, dtype in _INPUTS.items():
            node = self.graph.add("input", (), COMPUTED[dtype], name)
            self.values[name] = (node, dtype)

    def run(self) -> ScoreGraph:
        for step in self.program.steps:
            self.values[step.result] = (self.step(step), step.dtype)
        self.graph.result = self.as_dtype(self.program.result, "float32")
        return self.graph

    def step(self, step: Step) -> int:
        """Return the number of the node that a step becomes."""
        if step.dtype not in self.computed and step.word != "getitem":
            raise UnsupportedProgramError(f"{step.word} computes in {str(step.dtype)[6:]}")
        handler = _HANDLERS.get(step.word)
        if handler is None:
            raise UnsupportedProgramError(f"has no {step.word}")
        return handler(self, step)

    def _refuse(self, step: Step, what: str) -> UnsupportedProgramError:
        return UnsupportedProgramError(f"{step.word} {what}")

    def _value(self, item: Any) -> tuple[int, Any]:
        assert isinstance(item, Reference)
        if item.name not in self.values:
            self.values[item.name] = self._gather(int(item.name[1:]), ())
        return self.values[item.name]

    def _gather(self, tensor: int, indices: tuple[int, ...]) -> tuple[int, torch.dtype]:
        dtype = self.captured[tensor]
        if dtype not in STORED:
            raise UnsupportedProgramError(f"reads a captured tensor of {str(dtype)[6:]}")
        return self.graph.add("gather", indices, STORED[dtype], tensor), dtype

    def as_dtype(self, item: Any, dtype: str) -> int:
        """Return an argument in a dtype."""
        if isinstance(item, bool | int | float):
            return self.graph.constant(item, dtype)
        if not isinstance(item, Reference):
            raise UnsupportedProgramError(f"takes {type(item).__name__} for a value")
        return self.graph.cast(self._value(item)[0], dtype)

    def _common(self, items: tuple[Any, ...]) -> str:
        """Return the dtype in which torch compares these."""
        examples: list[Any] = [
            item if isinstance(item, bool | int | float) else self._example(self._value(item)[1])
            for item in items
        ]
        dtype = torch.result_type(examples[0], examples[1])
        if dtype in STORED and dtype not in self.computed:
            return STORED[dtype]  # comparing loses nothing
        if dtype not in self.computed:
            raise UnsupportedProgramError(f"compares in {str(dtype)[6:]}")
        return self.computed[dtype]

    def _example(self, dtype: Any) -> Any:
        if isinstance(dtype, torch.dtype):
            return torch.empty((), dtype=dtype, device="meta")
        return dtype(1)

    def _plain(self, step: Step, count: int) -> tuple[Any, ...]:
        """Return the arguments of a step that has so many, and no keyword that matters."""
        for name, value in step.kwargs:
            if name not in DEFAULTS or value != DEFAULTS[name]:
                raise self._refuse(step, f"with {name}=")
        if len(step.args) != count:
            raise self._refuse(step, f"with {len(step.args)} arguments")
        return step.args

    def _getitem(self, step: Step) -> int:
        source, index = step.args
        indices = index if isinstance(index, tuple) else (index,)
        for item in indices:
            if isinstance(item, Reference) and self._value(item)[1] not in (
                torch.int64,
                torch.int32,
            ):
                raise self._refuse(step, f"by {str(self._value(item)[1])[6:]}")
        numbers = tuple(
            self._value(item)[0]
            if isinstance(item, Reference)
            else self.graph.constant(item, "int64")
            for item in indices
        )
        return self._gather(int(source.name[1:]), numbers)[0]

    def _arithmetic(self, step: Step) -> int:
        args = self._plain(step, 2)
        dtype = self.computed[step.dtype]
        if dtype == "bool":
            raise self._refuse(step, "of truth values")
        word = {"maximum": "max", "minimum": "min"}.get(step.word, step.word)
        return self.graph.add(word, tuple(self.as_dtype(arg, dtype) for arg in args), dtype)

    def _whole_division(self, step: Step) -> int:
        value, divisor = self._plain(step, 2)
        dtype = self.computed[step.dtype]
        if dtype == "float32" and step.word != "floor_divide":
            if not isinstance(divisor, int | float) or not _is_power_of_two(divisor):
                raise self._refuse(step, "of float32 by anything but a plain power of two")
            return wrapped(step.word, self._term(value), float(divisor)).number
        if dtype not in ("int64", "int32") or step.word == "fmod":
            raise self._refuse(step, f"of {dtype}")
        if type(divisor) is not int or divisor == 0:
            raise self._refuse(step, "by anything but a plain integer that is not 0")
        return self.graph.add(step.word, (self.as_dtype(value, dtype),), dtype, divisor)

    def _shift(self, step: Step) -> int:
        value, count = self._plain(step, 2)
        dtype = self.computed[step.dtype]
        if type(count) is not int or not 0 <= count < 31 or dtype == "bool":
            raise self._refuse(step, "by anything but a plain integer from 0 to 30")
        number = self.as_dtype(value, dtype)
        if step.word == "bitwise_left_shift":
            return self.graph.add("mul", (number, self.graph.constant(1 << count, dtype)), dtype)
        return self.graph.add("floor_divide", (number,), dtype, 1 << count)

    def _comparison(self, step: Step) -> int:
        args = self._plain(step, 2)
        word, swapped = COMPARISONS[step.word]
        dtype = self._common(args)
        if dtype == "bool":
            dtype = "int32"
        first, second = (self.as_dtype(arg, dtype) for arg in args)
        return self.graph.add(word, (second, first) if swapped else (first, second), "bool")

    def _truth(self, step: Step) -> int:
        args = self._plain(step, 2)
        dtype = "bool" if step.word.startswith("logical") else self.computed[step.dtype]
        return self.graph.add(
            TRUTHS[step.word], tuple(self.as_dtype(a, dtype) for a in args), dtype
        )

    def _inversion(self, step: Step) -> int:
        (value,) = self._plain(step, 1)
        dtype = "bool" if step.word == "logical_not" else self.computed[step.dtype]
        ones = self.graph.constant(True if dtype == "bool" else -1, dtype)
        return self.graph.add("xor", (self.as_dtype(value, dtype), ones), dtype)

    def _choice(self, step: Step) -> int:
        condition, first, second = self._plain(step, 3)
        if step.word == "masked_fill":
            condition, first, second = first, second, condition
        dtype = self.computed[step.dtype]
        args = (
            self.as_dtype(condition, "bool"),
            self.as_dtype(first, dtype),
            self.as_dtype(second, dtype),
        )
        return self.graph.add("where", args, dtype)

    def _function(self, step: Step) -> int:
        (value,) = self._plain(step, 1)
        return self.graph.add(step.word, (self.as_dtype(value, "float32"),), "float32")

    def _composed(self, step: Step) -> int:
        if step.word == "gelu" and dict(step.kwargs).get("approximate") == "tanh":
            return gelu_tanh(self._term(step.args[0])).number
        if step.word in BINARY:
            first, second = self._plain(step, 2)
            return BINARY[step.word](self._term(first), self._term(second)).number
        (value,) = self._plain(step, 1)
        dtype = self.computed[step.dtype]
        if dtype != "float32":
            return self._composed_whole(step, value, dtype)
        return UNARY[step.word](self._term(value)).number

    def _parametric(self, step: Step) -> int:
        """Lower functions of one value and plain numbers."""
        value, *rest = step.args
        keywords = dict(step.kwargs)
        if self.computed[step.dtype] != "float32":
            raise self._refuse(step, f"of {self.computed[step.dtype]}")
        if step.word == "nan_to_num":  # what it was not given depends on the dtype
            keywords |= zip(("nan", "posinf", "neginf"), rest, strict=False)
            given = {name: item for name, item in keywords.items() if item is not None}
            finite = torch.finfo(step.dtype)
            rest, keywords = [], {"posinf": finite.max, "neginf": finite.min} | given
        if not all(isinstance(item, int | float) for item in (*rest, *keywords.values())):
            raise self._refuse(step, "with anything but plain numbers")
        return PARAMETRIC[step.word](self._term(value), *rest, **keywords).number

    def _composed_whole(self, step: Step, value: Any, dtype: str) -> int:
        """Lower what integers have of the composed words, which otherwise give float32."""
        if dtype == "bool" or step.word not in ("round", "sgn", "sign", "trunc"):
            raise self._refuse(step, f"of {dtype}")
        number = self.as_dtype(value, dtype)
        if step.word in ("round", "trunc"):
            return number
        low, high = (self.graph.constant(bound, dtype) for bound in (-1, 1))
        return self.graph.add("min", (self.graph.add("max", (number, low), dtype), high), dtype)

    def _term(self, item: Any) -> Term:
        return Term(self.graph, self.as_dtype(item, "float32"))

    def _sign_or_step(self, step: Step) -> int:
        """Lower neg, abs, relu, square, floor and ceil."""
        (value,) = self._plain(step, 1)
        dtype = self.computed[step.dtype]
        if dtype == "bool":
            raise self._refuse(step, "of truth values")
        number = self.as_dtype(value, dtype)
        if step.word in ("floor", "ceil"):
            return number if dtype != "float32" else self._rounded(step.word, number)
        if step.word == "relu":
            return self.graph.add("max", (number, self.graph.constant(0, dtype)), dtype, "relu")
        if step.word == "square":
            return self.graph.add("mul", (number, number), dtype)
        if dtype == "float32":
            return self.graph.add(step.word, (number,), dtype)
        negated = self.graph.add("sub", (self.graph.constant(0, dtype), number), dtype)
        if step.word == "neg":
            return negated
        return self.graph.add("max", (number, negated), dtype)

    def _rounded(self, word: str, number: int) -> int:
        if word == "floor":
            return self.graph.add("floor", (number,), "float32")
        negated = self.graph.add("neg", (number,), "float32")
        return self.graph.add("neg", (self._rounded("floor", negated),), "float32")

    def _clamp(self, step: Step) -> int:
        value, *rest = step.args
        bounds = dict(zip(("min", "max"), rest, strict=False)) | dict(step.kwargs)
        if step.word in ("clamp_min", "clamp_max"):
            bounds = {step.word[6:]: next(iter(bounds.values()))}
        dtype = self.computed[step.dtype]
        if dtype == "bool" or set(bounds) - {"min", "max"}:
            raise self._refuse(step, "in this form")
        number = self.as_dtype(value, dtype)
        for name, word in (("min", "max"), ("max", "min")):
            if (given := bounds.get(name)) is not None:
                shares = divides_ties() and isinstance(given, Reference)
                pair = number, self.as_dtype(given, dtype)
                number = self.graph.add(word, pair, dtype, None if shares else "clamp")
        return number

    def _power(self, step: Step) -> int:
        base, exponent = self._plain(step, 2)
        dtype = self.computed[step.dtype]
        if base == 2 and dtype == "float32":
            return self.graph.add("exp2", (self.as_dtype(exponent, dtype),), dtype)
        if isinstance(exponent, Reference) or isinstance(base, int | float):
            raise self._refuse(step, "with anything but base 2 or a plain exponent")
        number = self.as_dtype(base, dtype)
        if exponent in (0.5, -0.5) and dtype == "float32":
            return self.graph.add("sqrt" if exponent > 0 else "rsqrt", (number,), dtype)
        if exponent not in (1, 2, 3, 4, -1, -2) or (exponent < 0 and dtype != "float32"):
            raise self._refuse(step, f"with exponent {exponent}")
        result = number
        for _ in range(int(abs(exponent)) - 1):
            result = self.graph.add("mul", (result, number), dtype)
        if exponent < 0:
            result = self.graph.add("div", (self.graph.constant(1, dtype), result), dtype)
        return result

    def _mixed(self, step: Step) -> int:
        """Lower lerp, addcmul and addcdiv, with the keyword ``value`` of the last two."""
        keywords = dict(step.kwargs)
        first, second, third = (self._term(arg) for arg in step.args[:3])
        if len(step.args) != 3 or self.computed[step.dtype] != "float32":
            raise self._refuse(step, "in this form")
        if step.word == "lerp" and not keywords:
            return lerp(first, second, third).number
        factor = keywords.pop("value", 1)
        if keywords:
            raise self._refuse(step, f"with {next(iter(keywords))}=")
        part = second * third if step.word == "addcmul" else second / third
        if factor != 1:
            part = part * Term(self.graph, self.as_dtype(factor, "float32"))
        return (part + first).number

    def _same(self, step: Step) -> int:
        dtype = self.computed[step.dtype]
        number = self.as_dtype(step.args[0], dtype)
        if step.word == "detach" and dtype == "float32":
            return self.graph.add("detach", (number,), dtype)  # for the sake of the derivative
        return number

    def _fill(self, step: Step) -> int:
        value = FILLS[step.word]
        keywords = dict(step.kwargs)
        if value is None:
            value = keywords.get("fill_value", step.args[-1])
        if not isinstance(value, bool | int | float):
            raise self._refuse(step, "with anything but a plain number")
        return self.graph.constant(value, self.computed[step.dtype])

    def _special(self, step: Step) -> int:
        """Lower isnan, isinf, isneginf, isposinf and isfinite."""
        (value,) = self._plain(step, 1)
        number = self.as_dtype(value, "float32")
        if step.word == "isnan":
            return self.graph.add("ne", (number, number), "bool")
        infinity = float("-inf" if step.word == "isneginf" else "inf")
        if step.word in ("isinf", "isfinite"):
            number = self.graph.add("abs", (number,), "float32")
        word = "lt" if step.word == "isfinite" else "eq"
        return self.graph.add(word, (number, self.graph.constant(infinity, "float32")), "bool")


def _is_power_of_two(number: float) -> bool:
    """Return whether dividing by a number, and multiplying by it again, rounds nothing."""
    return number > 0 and math.frexp(number)[0] == 0.5 and 2.0**-60 < number < 2.0**60


def _table() -> dict[str, Callable[[Lowering, Step], int]]:
    groups: list[tuple[Callable[[Lowering, Step], int], Any]] = [
        (Lowering._getitem, ("getitem",)),
        (Lowering._arithmetic, ("add", "sub", "mul", "div", "maximum", "minimum")),
        (Lowering._whole_division, ("floor_divide", "fmod", "remainder")),
        (Lowering._composed, UNARY | BINARY),
        (Lowering._parametric, PARAMETRIC),
        (Lowering._shift, ("bitwise_left_shift", "bitwise_right_shift")),
        (Lowering._comparison, COMPARISONS),
        (Lowering._truth, TRUTHS),
        (Lowering._inversion, ("bitwise_not", "logical_not")),
        (Lowering._choice, ("where", "masked_fill")),
        (Lowering._function, FLOAT_WORDS),
        (Lowering._sign_or_step, ("neg", "abs", "relu", "square", "floor", "ceil")),
        (Lowering._clamp, ("clamp", "clamp_min", "clamp_max")),
        (Lowering._power, ("pow",)),
        (Lowering._same, SAME | CASTS),
        (Lowering._fill, FILLS),
        (Lowering._mixed, ("addcdiv", "addcmul", "lerp")),
        (Lowering._special, ("isfinite", "isinf", "isnan", "isneginf", "isposinf")),
    ]
    return {word: handler for handler, words in groups for word in words}


_HANDLERS: Final = _table()
