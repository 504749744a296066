"""How steps of arithmetic, comparison, logic, indexing and conversion become nodes."""

from __future__ import annotations

from typing import Any

from torchyard_programs._graph.graph import FLOATS, name_of
from torchyard_programs._graph.lowering import (
    Lowering,
    computed,
    handles,
    named,
    plain,
    refuse,
)
from torchyard_programs._graph.term import Term
from torchyard_programs._graph.ties import divides_ties
from torchyard_programs._program.program import Reference
from torchyard_programs._program.typed import Step

__all__: list[str] = []


@handles("getitem")
def _getitem(lowering: Lowering, step: Step) -> Term:
    source, index = step.args
    indices = index if isinstance(index, tuple) else (index,)
    if not isinstance(source, Reference) or source.name[0] != "$":
        raise refuse(step, "of a value that is no captured tensor")
    tensor = int(source.name[1:])
    if len(indices) != lowering.traits[tensor][1]:
        raise refuse(step, "that takes more than one element")
    terms = []
    for item in indices:
        if not isinstance(item, int | Reference) or lowering.dtype_of(item) == "bool":
            raise refuse(step, "by anything but integers")
        terms.append(lowering.term(item, "int64"))
    return lowering.loaded(tensor, tuple(terms))


@handles("add", "sub")
def _sum(lowering: Lowering, step: Step) -> Term:
    first, second, alpha = named(step, "input", "other", alpha=1)
    dtype = computed(step.dtype)
    other = lowering.term(second, dtype)
    if dtype == "bool":
        return lowering.term(first, dtype).of("or", other)
    if alpha != 1:
        other = other * lowering.term(alpha, dtype)
    return lowering.term(first, dtype).of(step.word, other)


@handles("mul", "maximum", "minimum")
def _binary(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    dtype = computed(step.dtype)
    if dtype == "bool":
        word = "or" if step.word == "maximum" else "and"
        return lowering.term(first, dtype).of(word, lowering.term(second, dtype))
    return lowering.term(first, dtype).of(step.word, lowering.term(second, dtype))


@handles("div")
def _div(lowering: Lowering, step: Step) -> Term:
    first, second, rounding = named(step, "input", "other", rounding_mode=None)
    dtype = computed(step.dtype)
    one, other = lowering.term(first, dtype), lowering.term(second, dtype)
    if rounding is None:
        return one / other
    if rounding == "floor":
        return _divided("floor_divide", one, other)
    return (
        (one / other).call("trunc") if dtype in FLOATS else one.call("integer_trunc_divide", other)
    )


@handles("floor_divide", "remainder", "fmod")
def _whole_division(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    dtype = computed(step.dtype)
    return _divided(step.word, lowering.term(first, dtype), lowering.term(second, dtype))


def _divided(word: str, one: Term, other: Term) -> Term:
    return one.call(word if one.dtype in FLOATS else f"integer_{word}", other)


@handles("bitwise_left_shift", "bitwise_right_shift")
def _shift(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    dtype = name_of(step.dtype)
    if dtype in FLOATS or dtype == "bool":
        raise refuse(step, f"of {dtype}")
    word = "shl" if step.word == "bitwise_left_shift" else "shr"
    return lowering.term(first, dtype).of(word, lowering.term(second, dtype))


@handles("lt", "le", "gt", "ge", "eq", "ne")
def _comparison(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    dtype = lowering.common(first, second)
    dtype = "int32" if dtype == "bool" else dtype
    one, other = lowering.term(first, dtype), lowering.term(second, dtype)
    if step.word in ("gt", "ge"):
        one, other = other, one
    word = {"gt": "lt", "ge": "le"}.get(step.word, step.word)
    return one.of(word, other, dtype="bool")


@handles("logical_and", "logical_or", "logical_xor")
def _logical(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    return lowering.term(first, "bool").of(step.word[8:], lowering.term(second, "bool"))


@handles("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    dtype = name_of(step.dtype)
    return lowering.term(first, dtype).of(step.word[8:], lowering.term(second, dtype))


@handles("logical_not")
def _logical_not(lowering: Lowering, step: Step) -> Term:
    (value,) = plain(step, 1)
    return lowering.term(value, "bool").of("not")


@handles("bitwise_not")
def _bitwise_not(lowering: Lowering, step: Step) -> Term:
    (value,) = plain(step, 1)
    dtype = name_of(step.dtype)
    number = lowering.term(value, dtype)
    return number.of("not") if dtype == "bool" else number.of("xor", -1)


@handles("where")
def _where(lowering: Lowering, step: Step) -> Term:
    condition, first, second = named(step, "condition", "input", "other")
    dtype = name_of(step.dtype)
    return lowering.term(condition, "bool").where(
        lowering.term(first, dtype), lowering.term(second, dtype)
    )


@handles("masked_fill")
def _masked_fill(lowering: Lowering, step: Step) -> Term:
    value, mask, filled = named(step, "input", "mask", "value")
    dtype = name_of(step.dtype)
    return lowering.term(mask, "bool").where(
        lowering.term(filled, dtype), lowering.term(value, dtype)
    )


@handles("neg", "abs", "square", "positive")
def _unary(lowering: Lowering, step: Step) -> Term:
    (value,) = plain(step, 1)
    dtype = computed(step.dtype)
    number = lowering.term(value, dtype)
    if step.word == "square":
        return number * number
    if step.word == "positive" or (step.word == "abs" and dtype in ("bool", "uint8")):
        return number
    return number.of(step.word)


@handles("floor", "ceil", "trunc", "round")
def _rounded(lowering: Lowering, step: Step) -> Term:
    value, decimals = named(step, "input", decimals=0)
    dtype = computed(step.dtype)
    number = lowering.term(value, dtype)
    if dtype not in FLOATS:
        return number
    if not decimals:
        return number.call("round_even" if step.word == "round" else step.word)
    # In the order of torch's kernel: multiply, round, divide; the other way round below 0.
    power = float(10 ** abs(decimals))
    if decimals > 0:
        return (number * power).call("round_even") / power
    return (number / power).call("round_even") * power


@handles("clamp", "clamp_min", "clamp_max")
def _clamp(lowering: Lowering, step: Step) -> Term:
    if step.word == "clamp":
        value, low, high = named(step, "input", min=None, max=None)
    else:
        value, bound = named(step, "input", step.word[6:])
        low, high = (bound, None) if step.word == "clamp_min" else (None, bound)
    dtype = computed(step.dtype)
    number = lowering.term(value, dtype)
    for bound, clamp, extreme in ((low, "clamp_min", "maximum"), (high, "clamp_max", "minimum")):
        if bound is not None:
            # The second divides the gradient at ties.
            word = extreme if divides_ties() and isinstance(bound, Reference) else clamp
            number = number.of(word, lowering.term(bound, dtype))
    return number


@handles("pow")
def _power(lowering: Lowering, step: Step) -> Term:
    base, exponent = plain(step, 2)
    dtype = computed(step.dtype)
    number = lowering.term(base, dtype)
    if isinstance(exponent, bool | int | float) and float(exponent) in (0.5, -0.5):
        return number.call("sqrt" if exponent > 0 else "rsqrt")
    if isinstance(exponent, bool | int | float) and float(exponent).is_integer():
        whole = int(exponent)
        if 1 <= abs(whole) <= 8 and (whole > 0 or dtype in FLOATS):
            product = _product(number, abs(whole))
            return product if whole > 0 else 1.0 / product
    if dtype in FLOATS and base == 2 and not isinstance(base, Reference):
        return lowering.term(exponent, dtype).call("exp2")
    return number.call(
        "power" if dtype in FLOATS else "integer_power", lowering.term(exponent, dtype)
    )


def _product(number: Term, count: int) -> Term:
    """Return a power by squaring."""
    if count == 1:
        return number
    half = _product(number, count // 2)
    return half * half * number if count % 2 else half * half


@handles(
    *("bfloat16", "bool", "clone", "contiguous", "detach", "double", "float", "half", "int"),
    *("long", "to", "type_as"),
)
def _same(lowering: Lowering, step: Step) -> Term:
    dtype = name_of(step.dtype)
    number = lowering.term(step.args[0], dtype)
    # For the sake of the derivative.
    return number.of("detach") if step.word == "detach" else number


@handles("zeros_like", "ones_like", "new_zeros", "new_ones", "full_like", "new_full", "new_tensor")
def _fill(lowering: Lowering, step: Step) -> Term:
    keywords = dict(step.kwargs)
    fixed = {"zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1}
    value: Any = fixed.get(step.word)
    if value is None:
        value = keywords.get("fill_value", keywords.get("data", step.args[-1]))
    return lowering.term(value, name_of(step.dtype))
