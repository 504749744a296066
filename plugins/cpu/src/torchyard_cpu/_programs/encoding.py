"""From steps to the bytes that the native kernels interpret."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from torchyard_cpu import _native
from torchyard_cpu._programs.binding import BoundScore
from torchyard_cpu._programs.sites import BoundGradient
from torchyard_cpu._programs.step import COLUMN, RAW, TILE, Step

__all__ = [
    "WORDS",
    "EncodedGradient",
    "EncodedScore",
    "NativeScore",
    "encode",
    "encode_gradient",
    "encode_roots",
]

_NUMBERS: Final = {name: number for number, name in enumerate(_native.score_ops())}
WORDS: Final = 7
_DATA_WORD: Final = 5
_FORMS: Final = {"one": 0, "affine": 1, "scatter": 2}

NativeScore = tuple[bytes, tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class EncodedScore:
    """A program without the addresses of its captured tensors.

    Attributes:
        words: seven per step, as ``ScoreStep`` of the native code.
        counts, slots: steps and places for values, by shape.
        result: the result's operand.
        addresses: (position in words, number of the captured tensor).
    """

    words: array[int]
    counts: tuple[int, ...]
    slots: tuple[int, ...]
    result: int
    addresses: tuple[tuple[int, int], ...]

    def at(self, addresses: Sequence[int]) -> NativeScore:
        """Return what ``_native.attention_forward`` takes, for captured tensors at addresses."""
        words = array("q", self.words)
        for position, tensor in self.addresses:
            words[position] = addresses[tensor]
        return words.tobytes(), self.counts, self.slots, self.result


@dataclass(frozen=True, slots=True)
class EncodedGradient:
    """A program with its derivatives.

    Attributes:
        score: the program.
        slope: the operand of d modified / d score.
        sites: (captured tensor, form, offset, extra, weight), offset and weight as operands.
    """

    score: EncodedScore
    slope: int
    sites: tuple[tuple[int, int, int, int, int], ...]


def encode(score: BoundScore) -> EncodedScore:
    """Give each value a place; of tiles, which the first-level cache must hold, one is used again
    once its value is not needed any more."""
    return encode_roots(score, (score.result,))[0]


def encode_gradient(gradient: BoundGradient) -> EncodedGradient:
    """Give each value a place, as :func:`encode` does."""
    roots = [gradient.score.result, gradient.slope]
    for site in gradient.sites:
        roots += [site.offset, site.weight]
    score, operands = encode_roots(gradient.score, tuple(roots))
    sites = tuple(
        (site.tensor, _FORMS[site.form], operands[site.offset], site.extra, operands[site.weight])
        for site in gradient.sites
    )
    return EncodedGradient(score, operands[gradient.slope], sites)


def encode_roots(score: BoundScore, roots: tuple[int, ...]) -> tuple[EncodedScore, dict[int, int]]:
    """Return the program that computes the roots, and their operands."""
    needed = _needed(score, roots)
    by_shape = [[n for n in needed if score.steps[n].shape == shape] for shape in range(4)]
    places: dict[int, int] = {}
    slots = []
    for shape, numbers in enumerate(by_shape):
        if shape == TILE:
            slots.append(_place_tiles(score, roots, numbers, places))
        else:
            slots.append(_place_apart(score.steps, numbers, places))

    def operand(number: int) -> int:
        return RAW if number == RAW else places[number] * 4 + score.steps[number].shape

    words = array("q")
    addresses = []
    for numbers in by_shape:
        for number in numbers:
            step = score.steps[number]
            args = [*(operand(arg) for arg in step.args), RAW, RAW, RAW][:3]
            if step.tensor >= 0:
                addresses.append((len(words) + _DATA_WORD, step.tensor))
            words.extend((_NUMBERS[step.op], places[number], *args, step.dimension, step.extra))
    assert len(words) == WORDS * len(needed)
    counts = tuple(len(numbers) for numbers in by_shape)
    encoded = EncodedScore(words, counts, tuple(slots), operand(score.result), tuple(addresses))
    return encoded, {root: operand(root) for root in roots}


def _needed(score: BoundScore, roots: tuple[int, ...]) -> list[int]:
    """Return the steps that the roots or a check of an index needs, in order."""
    needed = set(roots)
    for number in range(len(score.steps) - 1, -1, -1):
        if number in needed:
            needed.update(score.steps[number].args)
    return sorted(needed - {RAW})


def _width(step: Step) -> int:
    """Return how many places in a row a value takes."""
    return 2 if step.shape >= COLUMN and step.lanes == "l" else 1


def _place_apart(steps: Sequence[Step], numbers: list[int], places: dict[int, int]) -> int:
    used = 0
    for number in numbers:
        places[number] = used
        used += _width(steps[number])
    return used


def _place_tiles(
    score: BoundScore, roots: tuple[int, ...], numbers: list[int], places: dict[int, int]
) -> int:
    last_use = {arg: number for number in numbers for arg in score.steps[number].args}
    last_use.update(dict.fromkeys(roots, len(score.steps)))
    free: dict[int, list[int]] = {1: [], 2: []}
    used = 0
    for number in numbers:
        step = score.steps[number]
        width = _width(step)
        # Before its operands' places are free: a step may read them again after it has written.
        if free[width]:
            places[number] = free[width].pop()
        else:
            places[number] = used
            used += width
        for arg in set(step.args):
            if arg != RAW and score.steps[arg].shape == TILE and last_use[arg] == number:
                free[_width(score.steps[arg])].append(places[arg])
    return used
