"""How a model is called: its arguments by name, and back again."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, nn

from torchyard_export._tree import flatten, structure

_EMPTY: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Call:
    """The form of a model's call.

    Attributes:
        signature: of the model's forward, without what the example leaves to defaults.
        arguments: the example's, by parameter.
    """

    signature: inspect.Signature
    arguments: dict[str, Any]

    @classmethod
    def bind(cls, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Bind example arguments; raises TypeError as the call itself would."""
        signature = inspect.signature(model.forward)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"args: expected a call of {type(model).__name__}: {error}") from error
        # A parameter behind a skipped one can only be named.
        skipped = False
        kept = []
        for name, parameter in signature.parameters.items():
            if name not in bound.arguments:
                skipped = True
                continue
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                raise TypeError(
                    f"args: {type(model).__name__} takes **{name}; export wants each argument as a "
                    "parameter of forward: wrap the model in a module that names them"
                )
            found = parameter.replace(default=_EMPTY, annotation=_EMPTY)
            if skipped and found.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                found = found.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            kept.append(found)
        plain = inspect.Signature(kept)
        arguments = dict(bound.arguments)
        for path, leaf in flatten(arguments):
            if not isinstance(leaf, (Tensor, bool, int, float, str)) and leaf is not None:
                raise TypeError(
                    f"args: {path}: expected tensors and plain numbers in lists, tuples and dicts, "
                    f"got {type(leaf).__name__}"
                )
        structure(arguments)
        return cls(plain, arguments)

    def spread(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs) for arguments by parameter."""
        bound = inspect.BoundArguments(self.signature, dict(arguments))
        return bound.args, bound.kwargs

    def to_json(self) -> list[list[str]]:
        """Return the parameters as plain data: (name, kind)."""
        return [[item.name, item.kind.name] for item in self.signature.parameters.values()]


def read_signature(data: Any) -> inspect.Signature:
    """Read what :meth:`Call.to_json` wrote; raises ValueError, TypeError or KeyError."""
    names = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "VAR_POSITIONAL", "KEYWORD_ONLY")
    kinds: dict[str, Any] = {name: getattr(inspect.Parameter, name) for name in names}
    return inspect.Signature([inspect.Parameter(name, kinds[kind]) for name, kind in data])
