"""Steps of a program after binding: two made one, and what is read after each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from torchyard_cpu._programs.step import TILE, Step

__all__ = ["paired", "read_later"]

_FIRST: Final = frozenset({"add_f", "div_f", "mul_f", "sub_f"})
# The same whichever operand comes first.
_EITHER: Final = frozenset({"add_f", "mul_f"})


def paired(steps: Sequence[Step], roots: Sequence[int]) -> tuple[Step, ...]:
    """Return steps of which some compute what two did, so that values are stored half as often.

    What is then not needed any more is still there, under its number.

    Args:
        steps: in order.
        roots: the numbers of the results.
    """
    found = list(steps)
    needed = _needed(steps, roots)
    uses = Counter(arg for number in needed for arg in steps[number].args)
    uses.update(roots)

    def single(number: int) -> Step | None:
        """Return a step that nothing but its one reader needs, computed for each element."""
        step = found[number]
        return step if step.shape == TILE and uses[number] == 1 else None

    for number in sorted(needed):
        step = found[number]
        if step.shape == TILE:
            found[number] = _pair(step, [single(arg) for arg in step.args]) or step
    return tuple(found)


def _pair(step: Step, inner: Sequence[Step | None]) -> Step | None:
    """Return one step for a step and one of its operands; None where there is none."""
    if step.op == "mul_add_f":
        first, weight, other = step.args
        if inner[0] is not None and inner[0].op == "sqrt_f":
            return replace(step, op="sqrt_mul_add_f", args=(*inner[0].args, weight, other))
        for part, factor in ((inner[0], weight), (inner[1], first)):
            if part is not None and part.op == "sub_f" and part.args[1] == other:
                return replace(step, op="lerp_f", args=(*part.args, factor))
        return None
    if step.op not in _FIRST:
        return None
    for part, other, swapped in ((inner[0], step.args[1], False), (inner[1], step.args[0], True)):
        if part is not None and part.op in _FIRST:
            reverse = "r" if swapped and step.op not in _EITHER else ""
            op = f"{part.op[:-2]}_{reverse}{step.op}"
            return replace(step, op=op, args=(*part.args, other))
    return None


def read_later(steps: Sequence[Step], roots: Sequence[int], result: int) -> int:
    """Return the operands, as bits, that are read after a result was computed.

    An operand may be read in place, as long as any step needs it.
    """
    needed = _needed(steps, roots)
    later = 0
    for number in needed:
        step = steps[number]
        if not step.op.startswith("load_"):
            continue
        readers = [other for other in needed if number in steps[other].args]
        if number in roots or number > result or any(reader > result for reader in readers):
            later |= 1 << step.dimension
    return later


def _needed(steps: Sequence[Step], roots: Sequence[int]) -> set[int]:
    needed = set(roots)
    for number in range(len(steps) - 1, -1, -1):
        if number in needed:
            needed.update(steps[number].args)
    return needed
