"""Named dimensions with ranges, and where the inputs have them."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from torchyard import arguments as checks
from torchyard_export._tree import flatten

_FORM: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)(:(?P<least>\d+)\.\.(?P<most>\d*))?")
# No tensor is larger.
_MOST: Final = sys.maxsize
# Taken for the greatest size of a dimension without one, when sizes are tried.
UNBOUNDED_TRIAL: Final = 64


@dataclass(frozen=True, slots=True)
class Dimension:
    """A size that may differ between calls, with the range that is promised.

    Attributes:
        name: inputs that have the same name have the same size.
        min: the least size.
        max: the greatest size; None promises every size.

    Raises:
        ValueError: the name is no identifier, or the range is empty or of one size.
    """

    name: str
    min: int = 1
    max: int | None = None

    def __post_init__(self) -> None:
        of = "Dimension"
        name = checks.text(of, "name", self.name)
        # torch writes it into Python code, where a keyword is no name.
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"{of}: name: expected an identifier, got {self.name!r}")
        object.__setattr__(self, "min", checks.integer(of, "min", self.min, least=1))
        if self.min > _MOST:
            raise checks.wrong_value(of, "min", "a size that a tensor can have", self.min)
        if self.max is not None:
            most = checks.integer(
                *(of, "max", self.max), most=_MOST, remedy="leave it out to promise every size"
            )
            object.__setattr__(self, "max", most)
        if self.max is not None and self.max <= self.min:
            raise ValueError(
                f"Dimension: max: expected more than min for {self.name!r}, got "
                f"{self.min}..{self.max}; a size that never differs is left out of dynamic="
            )

    @classmethod
    def parse(cls, text: str) -> Dimension:
        """Read ``name`` or ``name:least..most``; ``name:least..`` has no greatest size.

        Raises:
            TypeError: the text is no string.
            ValueError: it has another form, or says what no dimension is.
        """
        match = _FORM.fullmatch(checks.text("Dimension.parse", "text", text))
        if match is None or keyword.iskeyword(match["name"]):
            raise checks.wrong_value(
                "Dimension.parse",
                "text",
                "a name, 'name:least..most' or 'name:least..'",
                repr(text),
            )
        if match["least"] is None:
            return cls(match["name"])
        return cls(
            match["name"], int(match["least"]), int(match["most"]) if match["most"] else None
        )

    @property
    def trial_max(self) -> int:
        """The greatest size that is tried."""
        return self.max if self.max is not None else max(UNBOUNDED_TRIAL, 4 * self.min)

    def __str__(self) -> str:
        return f"{self.name}:{self.min}..{'' if self.max is None else self.max}"


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Which dimensions of which inputs may differ.

    Attributes:
        dimensions: by name.
        leaves: per leaf of the inputs, in order: axis -> name of its dimension.
        shapes: the same in the form of ``torch.export``, per argument, with names as leaves.
    """

    dimensions: dict[str, Dimension]
    leaves: tuple[dict[int, str], ...]
    shapes: dict[str, Any]


def parse_dynamic(dynamic: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Dynamic:
    """Read ``dynamic=`` against the example arguments.

    Raises:
        ValueError, TypeError: names the argument, and what was expected.
    """
    given = {}
    if dynamic is not None:
        given = dict(checks.instance("export", "dynamic", dynamic, Mapping))
    if unknown := sorted(given.keys() - arguments.keys()):
        raise ValueError(
            f"dynamic: expected names of arguments ({', '.join(arguments)}), got {unknown[0]!r}"
        )
    dimensions: dict[str, Dimension] = {}
    bare: set[str] = set()
    leaves: list[dict[int, str]] = []

    def note(text: object, place: str) -> str:
        if isinstance(text, str):
            try:
                found = Dimension.parse(text)
            except ValueError as error:
                raise ValueError(f"dynamic: {place}: {error}") from None
            is_bare = ":" not in text
        elif isinstance(text, Dimension):
            found, is_bare = text, False
        else:
            raise TypeError(f"dynamic: {place}: expected a name or a Dimension, got {text!r}")
        known = dimensions.get(found.name)
        if known is None or (found.name in bare and not is_bare):
            dimensions[found.name] = found
            bare.discard(found.name)
            if is_bare:
                bare.add(found.name)
        elif not is_bare and known != found:
            raise ValueError(f"dynamic: {place}: {found} differs from {known} elsewhere")
        return found.name

    def walk(value: Any, spec: Any, place: str) -> Any:
        if isinstance(value, Tensor):
            axes = _axes(value, spec, place)
            named = {axis: note(text, f"{place}[{axis}]") for axis, text in axes.items()}
            leaves.append(named)
            return named
        if isinstance(value, PackedSequence):
            (_, data), _ = flatten(value)
            axes = walk(data, spec, place)
            # Not noted again: a name with its range is one already.
            leaves.append({0: axes[1]} if 1 in axes else {})
            return {"data": axes, "lengths": leaves[-1]}
        if isinstance(value, Mapping):
            inner = spec if spec is not None else {}
            _demand(isinstance(inner, Mapping) and inner.keys() <= value.keys(), place, value, spec)
            return {key: walk(value[key], inner.get(key), f"{place}.{key}") for key in value}
        if isinstance(value, Sequence) and not isinstance(value, str):
            parts = spec if spec is not None else [None] * len(value)
            if isinstance(parts, Mapping):
                parts = [parts.get(index) for index in range(len(value))]
            _demand(isinstance(parts, Sequence) and len(parts) == len(value), place, value, spec)
            found = [
                walk(item, part, f"{place}.{index}")
                for index, (item, part) in enumerate(zip(value, parts, strict=True))
            ]
            return found if isinstance(value, list) else tuple(found)
        _demand(spec is None, place, value, spec)
        leaves.append({})
        return None

    shapes = {name: walk(value, given.get(name), name) for name, value in arguments.items()}
    return Dynamic(dimensions, tuple(leaves), shapes)


def torch_shapes(dynamic: Dynamic, *, automatic: bool = False) -> dict[str, Any]:
    """Return the form that ``torch.export.export`` wants as ``dynamic_shapes``.

    Args:
        dynamic: what was asked for.
        automatic: let torch choose instead, for a diagnosis: it then specialises what it must.
    """
    dims: dict[str, Any] = {
        name: torch.export.Dim.AUTO
        if automatic
        else torch.export.Dim(name, min=dimension.min, max=dimension.max)
        for name, dimension in dynamic.dimensions.items()
    }

    def walk(spec: Any) -> Any:
        if isinstance(spec, dict):
            return {key: walk(item) for key, item in spec.items()} or None
        if isinstance(spec, (list, tuple)):
            return type(spec)(walk(item) for item in spec)
        return dims[spec] if isinstance(spec, str) else None

    return {name: walk(spec) for name, spec in dynamic.shapes.items()}


def _axes(value: Tensor, spec: Any, place: str) -> dict[int, object]:
    if spec is None:
        return {}
    if not isinstance(spec, Mapping):
        raise TypeError(f"dynamic: {place}: expected a dict axis -> dimension, got {spec!r}")
    axes: dict[int, object] = {}
    for axis, text in spec.items():
        if not isinstance(axis, int) or not -value.dim() <= axis < value.dim():
            raise ValueError(
                f"dynamic: {place}: expected axes of a tensor with {value.dim()} dimensions, got "
                f"{axis!r}"
            )
        axes[axis % value.dim()] = text
    return axes


def _demand(holds: bool, place: str, value: object, spec: object) -> None:
    if not holds:
        raise TypeError(
            f"dynamic: {place}: expected the form of a {type(value).__name__} argument, got "
            f"{spec!r}"
        )
