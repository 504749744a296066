"""Repeatable code: it does the same again if its names have the same values.

Such code reads its names and nothing else: no state of Python or torch, no attribute of an object,
no name that it sets. This follows from its instructions; any instruction that is not listed here
makes the code not repeatable.
"""

from __future__ import annotations

import dis
import inspect
import math
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import torch
from torch.nn import functional

from torchyard_programs._program.vocabulary import WORD_OF, WORDS

__all__ = ["ATTRIBUTES", "FIXED", "Repeatable", "is_fixed", "repeatable"]

# Modules whose attributes in ATTRIBUTES never change.
_MODULES: Final[tuple[ModuleType, ...]] = (torch, torch.nn, functional, torch.special, math)

# What gives the same for the same arguments.
_BUILTINS: Final = (abs, bool, enumerate, float, int, max, min, range, round, zip)

# By type, the modules and functions that always do the same.
FIXED: Final[dict[type, frozenset[Any]]] = {
    kind: frozenset(value for value in (*_MODULES, *_BUILTINS, *WORD_OF) if type(value) is kind)
    for kind in (ModuleType, FunctionType, BuiltinFunctionType, type)
}

_SIZED: Final = ("shape", "ndim", "size", "dim", "numel")

# What code may read: parts of modules; what depends on a tensor's dtype and shape alone; words of
# programs, which are recorded, and make another tensor of a plain one.
ATTRIBUTES: Final = (
    frozenset(("nn", "functional", "special", "pi", "e", "inf", "nan"))
    | frozenset(("dtype", *_SIZED))
    | frozenset(("log", "log2", "log10", "exp", "sqrt", "pow", "floor", "ceil"))
    | frozenset(name for name, value in vars(torch).items() if type(value) is torch.dtype)
    | WORDS
    | frozenset(function.__name__ for function in WORD_OF if function.__name__[-1] != "_")
)
# Keywords whose argument may be a text: the only place for one, so that it is no word of another
# kind, such as the name of a dimension or a format.
_TEXTS: Final = frozenset(("approximate", "rounding_mode"))
_KEYWORDS: Final = _TEXTS | frozenset(
    """
    alpha beta decimals dtype end eps exponent inplace input lambd max max_val min min_val nan
    neginf negative_slope other posinf threshold value weight
    """.split()
)

# Generators, and what may be given keywords that it does not name.
_OTHERS: Final = (
    inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)

# Moves on the stack, arithmetic, calls, jumps and the like. Those of later Pythons are listed with
# the ones that they replace; an instruction that is missing here costs time only.
_INSTRUCTIONS: Final = frozenset(
    """
    RESUME CACHE NOP COPY_FREE_VARS PUSH_NULL POP_TOP COPY SWAP PRECALL CALL CALL_KW RETURN_VALUE
    LOAD_FAST STORE_FAST LOAD_DEREF LOAD_GLOBAL BINARY_OP BINARY_SUBSCR COMPARE_OP
    BUILD_TUPLE BUILD_SLICE
    UNARY_NEGATIVE UNARY_POSITIVE UNARY_INVERT UNARY_NOT UNPACK_SEQUENCE GET_ITER FOR_ITER
    JUMP_FORWARD JUMP_BACKWARD JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP
    POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
    POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE END_FOR POP_ITER
    LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_FAST_LOAD_FAST TO_BOOL
    LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_SMALL_INT NOT_TAKEN
    """.split()
)


# What takes a tensor apart along its first dimension, of which code may only count the parts.
_COUNTING: Final = ("GET_ITER", "UNPACK_SEQUENCE")


class Repeatable(NamedTuple):
    """What repeatable code depends on, without its closure and its parameters.

    Attributes:
        outer: names that it reads from globals and builtins.
        sized: whether it may read the shape of a tensor.
        asking: whether it may read an attribute of anything but a name among globals, such as
            ``torch``.
    """

    outer: tuple[str, ...]
    sized: bool
    asking: bool


def repeatable(code: CodeType) -> Repeatable | None:
    """Return what a function's code depends on.

    None where the code may not do the same again although the outer names, its closure and its
    parameters' defaults hold the same. It may write to tensors, in place.
    """
    if code.co_flags & _OTHERS or code.co_exceptiontable:  # code that catches an error
        return None
    if not _TEXTS.isdisjoint(code.co_varnames):  # a function of its own would be given the text
        return None
    outer: dict[str, None] = {}
    sized = asking = text = named = False
    # Whether the top of the stack is a global, or an attribute of one.
    outside = False
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        # From Python 3.13 on the names of a call's keywords are a constant before it.
        keywords = _keywords(code, instruction)
        if (named and name != "CALL_KW") or (text and not keywords):
            return None
        named = False
        if name == "LOAD_GLOBAL":
            outer[value] = None
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            if value not in ATTRIBUTES:
                return None
            sized = sized or value in _SIZED
            asking = asking or not outside
        elif keywords:
            if not _KEYWORDS.issuperset(keywords) or (text and keywords[-1] not in _TEXTS):
                return None
            text, named = False, name == "LOAD_CONST"
        elif name in ("LOAD_CONST", "RETURN_CONST"):
            text = name == "LOAD_CONST" and type(value) is str
            if not text and not _is_plain(value):
                return None
        elif name not in _INSTRUCTIONS:
            return None
        sized = sized or name in _COUNTING
        outside = name == "LOAD_GLOBAL" or (outside and name in ("LOAD_ATTR", "LOAD_METHOD"))
    return Repeatable(tuple(outer), sized, asking)


def _keywords(code: CodeType, instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the names of keywords that an instruction gives to the call after it."""
    if instruction.opname not in ("KW_NAMES", "LOAD_CONST"):
        return ()
    # Not every Python's dis says which constant it is.
    assert instruction.arg is not None
    value = code.co_consts[instruction.arg]
    named = type(value) is tuple and all(type(name) is str for name in value)
    return value if named else ()


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float)


def is_fixed(value: object) -> bool:
    """Return whether a value is a module or a function that always does the same."""
    fixed = FIXED.get(type(value))
    return fixed is not None and value in fixed
