"""Calls of a model that calibrate or judge it, each checked against the example."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_export._artifact.inputs import bind_inputs
from torchyard_export._artifact.manifest import Leaf
from torchyard_export._call import Call
from torchyard_export._capture.dimension import Dimension, Dynamic
from torchyard_export._errors import InputError
from torchyard_export._tree import flatten, structure, unflatten

__all__ = ["Expected", "calls_of"]

_FORM = "a call of the model: a tuple (x,), or a dict {'x': x} of arguments by name"


@dataclass(frozen=True, slots=True)
class Expected:
    """What each call has to be; the attributes are those of a manifest.

    Attributes:
        signature: of a call.
        inputs: the leaves of its arguments.
        input_form: their structure.
        dimensions: by name.
        device: what the model lies on.
    """

    signature: inspect.Signature
    inputs: tuple[Leaf, ...]
    input_form: Any
    dimensions: dict[str, Dimension]
    device: str

    @classmethod
    def of(cls, call: Call, dynamic: Dynamic, device: str) -> Expected:
        """Describe calls like the example."""
        leaves = flatten(call.arguments)
        inputs = tuple(
            Leaf.of(path, leaf, axes)
            for (path, leaf), axes in zip(leaves, dynamic.leaves, strict=True)
        )
        form = structure(call.arguments)
        return cls(call.signature, inputs, form, dynamic.dimensions, device)


def calls_of(name: str, given: Iterable[Any], expected: Expected) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each call by name.

    Args:
        name: of the argument that holds the calls.
        given: the calls.
        expected: what each has to be.

    Raises:
        TypeError: a call is no tuple, list or dict, or has other parameters.
        ValueError: there is no call; InputError: one differs from the example, or has NaN.
    """
    count = 0
    for index, item in enumerate(given):
        count += 1
        yield _call(f"{name}[{index}]", item, expected)
    if not count:
        raise arguments.wrong_value(
            "quantize",
            name,
            "calls of the model",
            "none: the iterable is empty",
            "pass at least one call, (x,); a generator that was read before is empty",
        )


def _call(place: str, item: Any, expected: Expected) -> dict[str, Any]:
    if isinstance(item, Mapping):
        args, kwargs = (), {str(key): value for key, value in item.items()}
    elif isinstance(item, (tuple, list)):
        args, kwargs = tuple(item), {}
    else:
        raise arguments.wrong_kind("quantize", place, _FORM, item)
    try:
        leaves = bind_inputs(expected, args, kwargs)
    except TypeError as error:
        names = ", ".join(expected.signature.parameters)
        raise TypeError(
            f"quantize: {place}: expected the example's arguments ({names}), got others: {error}"
        ) from None
    except InputError as error:
        raise InputError(
            f"quantize: {place}: {error}; a size that differs between calls is named in dynamic="
        ) from None
    for leaf, said in zip(leaves, expected.inputs, strict=True):
        if isinstance(leaf, Tensor) and bool(torch.isnan(leaf).any()):
            raise InputError(
                f"quantize: {place}: input {said.name}: expected numbers, which scales are made "
                "of, got NaN"
            )
    return dict(unflatten(expected.input_form, leaves))
