"""Cases of ``pointwise/1``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from torchyard_conformance._kernels._case import Case, Given, implementation, named_cases
from torchyard_kernels import foreach_map
from torchyard_kernels.pointwise.contract import (
    POINTWISE,
    Operand,
    PointwiseCall,
    PointwiseRequest,
)
from torchyard_programs import trace

__all__ = ["GRIDS"]

_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "move": lambda x, y, rate: x + (y - x) * rate,
        "chain": lambda x, y, rate: torch.tanh(x) * y - torch.exp(x * rate) / (y * y + 1),
        "least": lambda x, y, rate: torch.minimum(x, y) * rate,
        "choice": lambda x, y, rate: torch.where(x > y, x * rate, y),
        "pair": lambda x, y, rate: (x - y * rate, x * x + y),
    }
)
_SHAPES: Final = ((3, 50), (1037,), (2, 3, 5), (1,))


@dataclass(frozen=True)
class PointwiseCase(Case):
    """A function of two lists of tensors and a list of numbers.

    Attributes:
        function: a key of _FUNCTIONS.
        dtype: of both lists.
        second: the second list's, where it is another one.
        shapes: of the groups.
        broadcast: whether the second list's tensors have one row each.
        captured: the shape of a tensor that the function captured, and adds; None: there is none.
        written: ``new``: the results are; ``out``: they are written to tensors of their own;
            ``place``: to the lists.
        bad: whether some elements are NaN, infinities and zeros of both signs.
    """

    function: str = "move"
    dtype: str = "float32"
    second: str = ""
    shapes: tuple[tuple[int, ...], ...] = _SHAPES
    broadcast: bool = False
    captured: tuple[int, ...] | None = None
    written: str = "new"
    bad: bool = False

    contract: ClassVar[str] = POINTWISE

    def make(self) -> Given:
        """Return the call."""
        generator = torch.Generator().manual_seed(17)

        def tensor(shape: tuple[int, ...], dtype: str) -> Tensor:
            found = (torch.randn(shape, generator=generator) * 3).to(getattr(torch, dtype))
            if self.bad and found.numel() > 9:
                flat = found.view(-1)
                flat[0], flat[1], flat[2], flat[-1] = torch.nan, torch.inf, -torch.inf, torch.nan
                flat[3], flat[4] = 0.0, -0.0
            return found

        first = [tensor(shape, self.dtype) for shape in self.shapes]
        second = [
            tensor((1, *shape[1:]) if self.broadcast else shape, self.second or self.dtype)
            for shape in self.shapes
        ]
        whole = first[0].is_floating_point()
        numbers = [0.25 * (at + 1) if whole else at + 2 for at in range(len(first))]
        captured = () if self.captured is None else (tensor(self.captured, self.dtype),)
        # What is captured is moved with the rest.
        traced, host = self._traced(captured), torch.device("cpu")
        text, found = trace(traced, self.name, _INPUTS, host, anywhere=True)
        results = 2 if self.function == "pair" else 1
        out = tuple([torch.zeros_like(item) for item in first] for _ in range(results))
        request = PointwiseRequest(
            "cpu",
            text,
            (_operand(first[0]), _operand(second[0]), (type(numbers[0]).__name__, -1)),
            tuple(_operand(item) for item in found),
            (self.dtype,) * results if self.written != "new" else (),
            len(first),
        )
        lists = (first, second, numbers)
        return (PointwiseCall(request, lists, tuple(found), out if self.written != "new" else ()),)

    def _traced(self, captured: tuple[Tensor, ...]) -> Callable[..., Any]:
        function = _FUNCTIONS[self.function]
        if not captured:
            return function
        return lambda x, y, rate: function(x, y, rate) + captured[0]

    def given(self, device: str = "cpu") -> Given:
        """Return the call; what is written in place is written to the lists themselves."""
        call: PointwiseCall = super().given(device)[0]
        call = replace(call, request=replace(call.request, device=device))
        if self.written == "place":
            lists: Any = call.inputs[: len(call.out)]
            call = replace(call, out=lists)
        return (call,)

    def request(self, given: Given) -> PointwiseRequest:
        """Describe the call."""
        call: PointwiseCall = given[0]
        return call.request

    def named_outputs(self, result: Any) -> dict[str, Tensor]:
        """Return results by their places."""
        return {
            f"out[{place}][{group}]": tensor
            for place, tensors in enumerate(result)
            for group, tensor in enumerate(tensors)
        }

    def exact(self, given: Given) -> dict[str, Tensor]:
        """Compute in float64, and round nowhere."""
        call: PointwiseCall = given[0]
        request = replace(
            call.request,
            inputs=tuple(_widened(item) for item in call.request.inputs),
            captured=tuple(_widened(item) for item in call.request.captured),
            out=(),
        )
        wide = PointwiseCall(
            request,
            tuple([_wide(item) for item in items] for items in call.inputs),
            tuple(_wide(item) for item in call.captured),
        )
        return self.named_outputs(implementation(POINTWISE, "kernels.map_reference")(wide))

    def naive(self, given: Given) -> dict[str, Tensor]:
        """Call the function, so that torch rounds each of its steps."""
        call: PointwiseCall = given[0]
        function = self._traced(call.captured)
        found = [function(*items) for items in zip(*call.inputs, strict=True)]
        results = [item if isinstance(item, tuple) else (item,) for item in found]
        return self.named_outputs([list(items) for items in zip(*results, strict=True)])

    def public(self, given: Given) -> Any:
        """Call foreach_map, whose op has the rule."""
        call: PointwiseCall = given[0]
        return foreach_map(self._traced(call.captured), *call.inputs)


_INPUTS: Final = (("x0", None), ("x1", None), ("x2", None))


def _operand(tensor: Tensor) -> Operand:
    return str(tensor.dtype)[6:], min(tensor.dim(), 1)


def _widened(operand: Operand) -> Operand:
    dtype, dimensions = operand
    floating = dimensions >= 0 and getattr(torch, dtype).is_floating_point
    return ("float64" if floating else dtype), dimensions


def _wide(item: Any) -> Any:
    return item.double() if isinstance(item, Tensor) and item.is_floating_point() else item


_FLOATS: Final = ("float32", "bfloat16", "float16")
_MATCHES: Final = named_cases(
    *(
        PointwiseCase(f"{name}-{dtype}", function=name, dtype=dtype)
        for name in _FUNCTIONS
        for dtype in _FLOATS
    ),
    PointwiseCase("float64", dtype="float64", function="chain"),
    PointwiseCase("int64", dtype="int64", function="choice"),
    PointwiseCase("int32", dtype="int32", function="least"),
    *(PointwiseCase(f"broadcast-{name}", dtype=name, broadcast=True) for name in _FLOATS),
    *(PointwiseCase(f"captured-{name}", dtype=name, captured=()) for name in _FLOATS),
    *(
        PointwiseCase(f"captured-row-{name}", dtype=name, captured=(50,), shapes=((3, 50), (1, 50)))
        for name in _FLOATS
    ),
    PointwiseCase("two-dtypes", dtype="float32", second="bfloat16"),
    PointwiseCase("many-groups", shapes=((5,), (33,), (2, 9)) * 7),
    PointwiseCase("large", shapes=((70, 1001),), dtype="bfloat16", function="chain"),
)
_WRITTEN: Final = named_cases(
    *(
        PointwiseCase(f"{word}-{name}-{dtype}", function=name, dtype=dtype, written=word)
        for name in ("move", "pair")
        for dtype in _FLOATS
        for word in ("out", "place")
    ),
)
_NOT_FINITE: Final = named_cases(
    *(
        PointwiseCase(f"{name}-{dtype}", function=name, dtype=dtype, bad=True)
        for name in ("move", "least", "choice", "pair")
        for dtype in _FLOATS
    ),
)
_LAYOUTS: Final = ("offset", "strided", "transposed")
_ANY_MEMORY: Final = named_cases(
    *(
        PointwiseCase(f"{dtype}-{layout}", layout, "chain", dtype)
        for dtype in _FLOATS
        for layout in _LAYOUTS
    ),
    *(
        PointwiseCase(f"out-{layout}", layout, written="out", shapes=((6, 7), (40, 3)))
        for layout in _LAYOUTS
    ),
    PointwiseCase("nothing", shapes=((0, 3), (4, 2))),
)
_FORMS: Final = named_cases(
    PointwiseCase("float32"),
    PointwiseCase("pair", function="pair", dtype="bfloat16"),
    PointwiseCase("broadcast", dtype="float16", broadcast=True),
    PointwiseCase("two-dtypes", dtype="float16", second="bfloat16"),
    PointwiseCase("int32", dtype="int32", function="least"),
    PointwiseCase("out", written="out", dtype="bfloat16"),
)
_REPEATS: Final = named_cases(
    *(PointwiseCase(name, function="chain", dtype=name, shapes=((70, 1001),)) for name in _FLOATS),
)
_TANGENTS: Final = named_cases(
    PointwiseCase("move"),
    PointwiseCase("chain-float64", dtype="float64", function="chain"),
    PointwiseCase("pair", function="pair"),
    PointwiseCase("captured", captured=()),
)
GRIDS: Final[Mapping[str, Mapping[str, Mapping[str, Case]]]] = {
    POINTWISE: {
        "matches": _MATCHES,
        "written": _WRITTEN,
        "not-finite": _NOT_FINITE,
        "any-memory": _ANY_MEMORY,
        "forms": _FORMS,
        "repeats": _REPEATS,
        "tangents": _TANGENTS,
    }
}
