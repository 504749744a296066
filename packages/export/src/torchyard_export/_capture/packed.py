"""Models that take or give packed sequences, recorded with padded tensors and lengths instead."""

from __future__ import annotations

import inspect
from types import MethodType
from typing import Any

from torch import nn

from torchyard_export._call import Call
from torchyard_export._tree import flatten, structure, unflatten


def opened(value: Any) -> Any:
    """Return a structure with ``{"data": ..., "lengths": ...}`` for each packed sequence."""
    return unflatten(_open_form(structure(value)), [leaf for _, leaf in flatten(value)])


def has_packed(form: Any) -> bool:
    """Whether a structure, as :func:`structure` returns it, has packed sequences."""
    return bool(_open_form(form) != form)


class Opened(nn.Module):
    """A model between tensors alone: what it takes is packed inside, what it gives is padded.

    While it is recorded, neither packing nor padding makes sizes that depend on data.

    Args:
        model: whose packed sequences are opened.
        call: of the model.
    """

    def __init__(self, model: nn.Module, call: Call) -> None:
        super().__init__()
        self.model = model
        self._call = call
        self._form = structure(call.arguments)

        def forward(self: Opened, *args: Any, **kwargs: Any) -> Any:
            return self._run(*args, **kwargs)

        # Whoever records asks for the parameters' names; a method is copied with its model.
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        parameters = [itself, *call.signature.parameters.values()]
        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        self.forward = MethodType(forward, self)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        given = self._call.signature.bind(*args, **kwargs).arguments
        leaves = [leaf for _, leaf in flatten(dict(given))]
        args, kwargs = self._call.spread(unflatten(self._form, leaves))
        return opened(self.model(*args, **kwargs))


def _open_form(form: Any) -> Any:
    if not isinstance(form, dict):
        return form
    kind, parts = next(iter(form.items()))
    if kind == "packed":
        return {"dict": {"data": None, "lengths": None}}
    if isinstance(parts, dict):
        return {kind: {key: _open_form(part) for key, part in parts.items()}}
    return {kind: [_open_form(part) for part in parts]}
