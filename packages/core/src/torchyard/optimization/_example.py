"""The call that a model is optimized for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard import arguments

__all__ = ["ExampleCall"]


@dataclass(frozen=True, slots=True)
class ExampleCall:
    """A call of a model, or of a function with the model.

    Attributes:
        args, kwargs: of the model's call.
        function: called with the model instead, such as one that generates; None for a plain call.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    function: Callable[[Any], Any] | None = None

    def run(self, model: Callable[..., Any]) -> Any:
        """Return what the call gives."""
        if self.function is not None:
            return self.function(model)
        return model(*self.args, **self.kwargs)

    @classmethod
    def parse(cls, of: str, example: Any) -> ExampleCall:
        """Return the call that a user's example stands for; see :func:`torchyard.optimize`."""
        from torch import Tensor, nn

        if isinstance(example, Tensor):
            return cls((example,), {})
        if isinstance(example, Mapping):
            for name in example:
                arguments.text(of, "example (a keyword)", name)
            return cls((), dict(example))
        if isinstance(example, list | tuple):
            return cls(tuple(example), {})
        if callable(example) and not isinstance(example, nn.Module):
            return cls((), {}, example)
        expected = "a tensor, a tuple of arguments, a mapping of keyword arguments, or a function"
        raise arguments.wrong_kind(of, "example", expected, example)
