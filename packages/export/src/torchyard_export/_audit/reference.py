"""What the model computes, in its own precision and in float64: the reference of every check."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from torchyard_export._audit.exact import ExactGraph
from torchyard_export._audit.rounding import is_quantized
from torchyard_export._call import Call
from torchyard_export._capture.frames import raising_line
from torchyard_export._tree import flatten, map_leaves, structure

# A program may be this many times as far from float64 as the model itself is: another order of the
# same sums is as good a rounding as the model's.
SLACK: Final = 4.0
# A quantized program may be so many times as far as rounding ties to the other code takes it, which
# is done to more of them than a program's own sums would.
TIES: Final = 2.0
# Where the model cannot run in float64, so many units of the largest element's precision.
UNITS: Final = 64.0


@dataclass(frozen=True, slots=True)
class Case:
    """One call and what is right for it.

    Attributes:
        sizes: of the dimensions, by name.
        arguments: of the call, by parameter.
        outputs: the model's own, leaf by leaf.
        exact: the same in float64; the outputs themselves where the model cannot run so.
        bounds: how far from ``exact`` each floating output may be.
        form: the structure of the outputs.
    """

    sizes: dict[str, int]
    arguments: dict[str, Any]
    outputs: list[tuple[str, Any]]
    exact: list[Any]
    bounds: list[float]
    form: Any


class ModelRefusal(Exception):
    """The model itself raises for an input that its ranges promise."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.where = raising_line(error)


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of a model, with a graph's structures too."""
    with warnings.catch_warnings():
        # torch's own classes of structures warn when they are copied.
        warnings.simplefilter("ignore", FutureWarning)
        return copy.deepcopy(model)


class Reference:
    """A private copy of a model, and one in float64.

    Attributes:
        ruler: ``float64``, or why it is the model's own precision.
    """

    def __init__(self, model: nn.Module, call: Call) -> None:
        self._call = call
        self._model = copied(model)
        self._wide: Callable[..., Any] | None = None
        self._ties: Callable[..., Any] | None = None
        self.ruler = "float64"
        if isinstance(self._model, GraphModule) and is_quantized(self._model):
            self._wide = ExactGraph(self._model)
            self._ties = ExactGraph(self._model, ties=True)
            self.ruler = "float64 between its codes, and what ties between codes may change"
            return
        try:
            self._wide = copied(model).double()
        except Exception as error:
            # Quantised weights, for one, have no other dtype.
            self._give_up(error)

    @torch.no_grad()
    def case(self, sizes: Mapping[str, int], arguments: dict[str, Any]) -> Case:
        """Run the model.

        Raises:
            ModelRefusal: the model raised.
        """
        found = self.run(arguments)
        outputs = flatten(found)
        exact = self._exact(arguments, outputs)
        bounds = [
            bound_of(leaf, wide, measured=self._wide is not None)
            for (_, leaf), wide in zip(outputs, exact, strict=True)
        ]
        if self._wide is not None and self._ties is not None:
            other = [leaf for _, leaf in flatten(self._call_wide(self._ties, arguments))]
            bounds = [
                max(bound, TIES * _distance(wide, leaf))
                for bound, wide, leaf in zip(bounds, exact, other, strict=True)
            ]
        return Case(dict(sizes), arguments, outputs, exact, bounds, structure(found))

    @torch.no_grad()
    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Run the model in its own precision on copies of the arguments."""
        args, kwargs = self._call.spread(map_leaves(dict(arguments), _copied))
        try:
            return self._model(*args, **kwargs)
        except Exception as error:
            raise ModelRefusal(error) from error

    def _exact(self, arguments: Mapping[str, Any], outputs: list[tuple[str, Any]]) -> list[Any]:
        if self._wide is not None:
            try:
                wide = [leaf for _, leaf in flatten(self._call_wide(self._wide, arguments))]
                if [_shape(leaf) for leaf in wide] == [_shape(leaf) for _, leaf in outputs]:
                    return wide
                raise ValueError("its outputs have other shapes in float64")
            except Exception as error:
                self._give_up(error)
        return [leaf for _, leaf in outputs]

    def _call_wide(self, form: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        args, kwargs = self._call.spread(map_leaves(dict(arguments), _widened))
        return form(*args, **kwargs)

    def _give_up(self, error: Exception) -> None:
        self._wide = None
        self.ruler = f"the model's own precision; float64: {type(error).__name__}: {error}"


def bound_of(leaf: Any, exact: Any, *, measured: bool) -> float:
    """Return how far from the exact values an output may be; 0 for what must be equal."""
    if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or not leaf.numel():
        return 0.0
    wide = exact.double()
    finite = torch.isfinite(wide) & torch.isfinite(leaf)
    if not bool(finite.any()):
        return 0.0
    scale = float(wide[finite].abs().max())
    unit = torch.finfo(leaf.dtype).eps * scale
    if not measured:
        return UNITS * unit
    error = float((leaf.double() - wide)[finite].abs().max())
    return SLACK * max(error, unit)


def _distance(exact: Any, other: Any) -> float:
    if not isinstance(exact, Tensor) or not exact.is_floating_point() or not exact.numel():
        return 0.0
    finite = torch.isfinite(exact) & torch.isfinite(other)
    return float((other - exact)[finite].abs().max()) if bool(finite.any()) else 0.0


def _shape(leaf: Any) -> Any:
    return leaf.shape if isinstance(leaf, Tensor) else leaf


def _copied(leaf: Any) -> Any:
    return leaf.detach().clone(memory_format=torch.preserve_format) if _is(leaf) else leaf


def _widened(leaf: Any) -> Any:
    copied = _copied(leaf)
    return copied.double() if _is(leaf) and leaf.is_floating_point() else copied


def _is(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)
