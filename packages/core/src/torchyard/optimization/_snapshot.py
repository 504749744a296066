"""What a model is made of, to tell whether a change was taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Snapshot"]

_Attributes = dict[str, Any]


class Snapshot:
    """The modules of a model with their classes, parameters, buffers, hooks and attributes.

    It holds the objects themselves, so that another object at the same address is another one.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = {name: (type(module), _attributes(module)) for name, module in _all(model)}

    def change(self, model: nn.Module) -> str:
        """Return the first thing that is not as it was; empty where all is."""
        found = dict(_all(model))
        for name in self._modules.keys() ^ found.keys():
            return f"module {name!r} {'is new' if name in found else 'is gone'}"
        for name, (kind, attributes) in self._modules.items():
            module = found[name]
            if type(module) is not kind:
                return f"module {name!r} is a {type(module).__name__}, was a {kind.__name__}"
            now = _attributes(module)
            for key in attributes.keys() | now.keys():
                if not _is_same(attributes.get(key, _ABSENT), now.get(key, _ABSENT)):
                    return f"{name + '.' if name else ''}{key}"
        return ""


_ABSENT = object()


def _all(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    yield from model.named_modules(remove_duplicate=False)


def _attributes(module: nn.Module) -> _Attributes:
    """Return a module's attributes, with the entries of its parameters, buffers and hooks."""
    found: _Attributes = {}
    for key, value in vars(module).items():
        if isinstance(value, Mapping):
            found[key] = type(value)
            found |= {f"{key}[{inner!r}]": item for inner, item in value.items()}
        else:
            found[key] = value
    return found


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    # Equal numbers and strings need not be one object; tensors compare element by element.
    plain = (bool, int, float, str, type(None), tuple, frozenset)
    return type(one) is type(other) and isinstance(one, plain) and bool(one == other)
