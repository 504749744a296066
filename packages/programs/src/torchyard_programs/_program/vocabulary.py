"""The vocabulary of programs: pointwise operations, and their functions in torch and Python.

A program names an operation by one canonical word, which covers several torch functions, tensor
methods and Python operators. The tracer reads the table from function to word, the evaluator from
word to function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

# Words with a Python operator, which unlike the torch function also takes a number on the left.
OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift,
    "bitwise_right_shift": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "neg": operator.neg,
    "bitwise_not": operator.invert,
    "abs": operator.abs,
    "getitem": operator.getitem,
}

_FUNCTIONS: Final = (
    "acos acosh addcdiv addcmul asin asinh atan atan2 atanh ceil clamp clamp_max clamp_min "
    "copysign cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor fmax fmin fmod frac "
    "full_like heaviside hypot i0 isfinite isinf isnan isneginf isposinf ldexp lerp lgamma log "
    "log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit "
    "masked_fill maximum minimum nan_to_num ones_like positive rad2deg reciprocal round rsqrt rsub "
    "sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc where xlogy zeros_like"
).split()
_METHODS: Final = (
    "bfloat16 bool contiguous detach double float half int long new_full new_ones new_tensor "
    "new_zeros clone to type_as"
).split()
_ACTIVATIONS: Final = (
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 "
    "selu silu softplus softshrink softsign tanhshrink threshold"
).split()
_ALIASES: Final = {
    "abs": "absolute",
    "neg": "negative",
    "add": "__add__ __radd__",
    "sub": "subtract __sub__",
    "mul": "multiply __mul__ __rmul__",
    "div": "divide true_divide __truediv__ __div__",
    "rsub": "__rsub__",
    "rdiv": "__rtruediv__ __rdiv__",
    "floor_divide": "__floordiv__",
    "rfloor_divide": "__rfloordiv__",
    "remainder": "__mod__",
    "rremainder": "__rmod__",
    "pow": "__pow__",
    "rpow": "__rpow__",
    "bitwise_and": "__and__ __rand__",
    "bitwise_or": "__or__ __ror__",
    "bitwise_xor": "__xor__ __rxor__",
    "bitwise_left_shift": "__lshift__",
    "bitwise_right_shift": "__rshift__",
    "rbitwise_left_shift": "__rlshift__",
    "rbitwise_right_shift": "__rrshift__",
    "bitwise_not": "__invert__",
    "eq": "__eq__",
    "ne": "not_equal __ne__",
    "lt": "less __lt__",
    "le": "less_equal __le__",
    "gt": "greater __gt__",
    "ge": "greater_equal __ge__",
    "clamp": "clip",
    "trunc": "fix",
    "acos": "arccos",
    "asin": "arcsin",
    "atan": "arctan",
    "atan2": "arctan2",
    "sigmoid": "expit",
    "neg ": "__neg__",
    "abs ": "__abs__",
    "getitem": "__getitem__",
}

# Reversed operators: the recorded arguments are (self, other) and mean other <operator> self.
REVERSED: Final = {
    "rsub": "sub",
    "rdiv": "div",
    "rfloor_divide": "floor_divide",
    "rremainder": "remainder",
    "rpow": "pow",
    "rbitwise_left_shift": "bitwise_left_shift",
    "rbitwise_right_shift": "bitwise_right_shift",
}


def _spellings() -> tuple[dict[str, Callable[..., Any]], dict[Any, str]]:
    functions: dict[str, Callable[..., Any]] = {}
    words: dict[Any, str] = {}
    owners = (torch, Tensor, functional, torch.special)
    for word in (*OPERATORS, *_FUNCTIONS, *_METHODS, *_ACTIVATIONS):
        spelled = [
            getattr(owner, word)
            for owner in (owners if word not in _METHODS else (Tensor,))
            if hasattr(owner, word)
        ]
        if spelled:
            functions[word] = spelled[0]
        words.update((function, word) for function in spelled)
    for word, aliases in _ALIASES.items():
        for alias in aliases.split():
            for owner in owners:
                if hasattr(owner, alias):
                    words[getattr(owner, alias)] = word.strip()
    functions["getitem"] = operator.getitem
    return functions, words


_FUNCTION_OF, WORD_OF = _spellings()

WORD_OF_OPERATOR: Final = {function: word for word, function in OPERATORS.items()}

# By name, because under Dynamo an operator's method is another object.
WORD_OF_METHOD: Final = {
    alias: word.strip()
    for word, aliases in _ALIASES.items()
    for alias in aliases.split()
    if alias.startswith("__")
}
WORDS: Final = frozenset(_FUNCTION_OF) | frozenset(REVERSED) | frozenset(OPERATORS)


def function_of(word: str, has_keywords: bool) -> Callable[..., Any]:
    """Return the function of a word; the operator where possible, since it takes numbers too."""
    if word in OPERATORS and not has_keywords:
        return OPERATORS[word]
    return _FUNCTION_OF[word]


def is_word(name: str) -> bool:
    """Return whether a step's name is a word of the vocabulary, and so pointwise."""
    return name in WORDS
