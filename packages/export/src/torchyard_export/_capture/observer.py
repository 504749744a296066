"""What a model reads of tensors while it is recorded, and which line fixed a size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchyard_export._capture.frames import calling_line
from torchyard_export._capture.recurrent import REPLACEMENTS
from torchyard_export._torch_compat import FakeTensor

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

BRANCHES: Final = {"__bool__", "is_nonzero"}
NUMBERS: Final = {"__float__", "__index__", "__int__", "item", "numpy", "tolist"}
LAYOUTS: Final = {"as_strided", "data_ptr", "is_contiguous", "storage_offset", "stride", "view"}


class Observer(TorchFunctionMode):
    """Put ops of ours into the program, and record the lines that could make it wrong.

    Attributes:
        questions: (name of the method, ``file:line``, whether a plain number came) for each value
            that left a tensor.
        layouts: lines that asked for, or built on, where a tensor's elements lie.
        shapes: the environment of symbolic sizes, once one was seen.
        lines: the number of replaced symbols before and after each line that replaced any.
    """

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[tuple[str, str, bool]] = []
        self.layouts: list[str] = []
        self.shapes: ShapeEnv | None = None
        self.lines: list[tuple[int, int, str]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch, or what stands for it."""
        name = getattr(func, "__name__", "")
        asked = name in BRANCHES or name in NUMBERS
        if asked:
            self.questions.append((name, calling_line(), False))
        elif name in LAYOUTS and (line := calling_line()):
            self.layouts.append(line)
        before = self._replaced()
        try:
            replacement = REPLACEMENTS.get(func)
            if replacement is not None:
                found = replacement(*args, **(kwargs or {}))
                if found is not NotImplemented:
                    return found
            found = func(*args, **(kwargs or {}))
            if asked and type(found) in {bool, float, int, list}:
                self.questions[-1] = (name, calling_line(), not _symbolic(found))
            return found
        finally:
            if self.shapes is None:
                self.shapes = _shapes_of(args)
            after = self._replaced()
            if after != before:
                self.lines.append((before, after, calling_line()))

    def line_of(self, replacement: int) -> str:
        """Return the line that replaced a symbol, counted from 0; empty if unknown."""
        return next((line for low, high, line in self.lines if low <= replacement < high), "")

    def _replaced(self) -> int:
        return len(self.shapes.guards) if self.shapes is not None else 0


def _symbolic(found: Any) -> bool:
    return isinstance(found, list) and any(type(item) not in {bool, float, int} for item in found)


def _shapes_of(args: Any) -> ShapeEnv | None:
    for item in args:
        if isinstance(item, FakeTensor):
            return item.fake_mode.shape_env
        if isinstance(item, Tensor) and type(item) is not Tensor:
            continue
        if isinstance(item, (list, tuple)):
            found = _shapes_of(item)
            if found is not None:
                return found
    return None
