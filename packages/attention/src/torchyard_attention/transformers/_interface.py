"""Which models call the attention interface, checked when a model that asks for it is built.

transformers accepts any registered name for any model. A model that computes attention itself then
goes on without the attention that its user asked for, or fails with a KeyError while it is built.
"""

from __future__ import annotations

import sys
import warnings
from enum import Enum
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import torch
from torch.nn.modules.module import register_module_module_registration_hook

from torchyard_attention.transformers._errors import UnsupportedArgumentError

__all__ = ["UnusedAttentionWarning", "calls_interface", "check_models"]

# What a file of transformers calls the interface, and the masks that belong to it.
_INTERFACE: Final = "ALL_ATTENTION_FUNCTIONS"
_MASKS: Final = (
    "create_bidirectional_mask create_causal_mask create_masks_for_generate "
    "create_sliding_window_causal_mask"
).split()
_REMEDY: Final = 'load the model with attn_implementation="sdpa" or "eager"'


class UnusedAttentionWarning(UserWarning):
    """A model was given this attention and computes its own."""


class _Kind(Enum):
    """What a file of transformers does for attention."""

    INTERFACE = "calls the attention interface, or leaves attention to other files"
    OWN = "computes attention itself"
    OWN_WITH_MASKS = "computes attention itself with the masks of the interface"
    TABLE = "chooses from a table of its own"


# The names that were registered, and the files that were judged for each.
_names: set[str] = set()
_judged: set[tuple[str, str]] = set()
_hooks: list[Any] = []


def check_models(name: str) -> None:
    """Judge every model that is built with ``attn_implementation=name`` from now on, once a class.

    A model that would fail or compute with a mask that it cannot read raises
    UnsupportedArgumentError while it is built; one that never calls the interface warns once.
    """
    _names.add(name)
    if not _hooks:
        models = import_module("transformers").PreTrainedModel
        _hooks.append(register_module_module_registration_hook(partial(_judge, models)))


def calls_interface(model: torch.nn.Module) -> bool:
    """Return whether a model calls the attention interface, or leaves attention to its parts."""
    return _kind(sys.modules[type(model).__module__], "torchyard") is _Kind.INTERFACE


def _judge(
    models: type, module: torch.nn.Module, name: str, submodule: torch.nn.Module | None
) -> None:
    """Judge a model as its first submodule is assigned, before its attention layers are built."""
    # Models slice lists of modules, which makes new ones, in what torch.compile traces. Other
    # modules may not be asked for attributes while they are made.
    if torch.compiler.is_compiling() or not isinstance(module, models):
        return
    attention = getattr(module.config, "_attn_implementation", None)
    if not isinstance(attention, str) or attention not in _names:
        return
    file = type(module).__module__
    if (file, attention) in _judged:
        return
    kind = _kind(sys.modules[file], attention)
    model = type(module).__name__
    if kind is _Kind.TABLE:
        raise UnsupportedArgumentError(
            f'attn_implementation: {model} does not know "{attention}": it chooses from a table of '
            f"its own and not from transformers' attention interface; {_REMEDY}"
        )
    if kind is _Kind.OWN_WITH_MASKS:
        raise UnsupportedArgumentError(
            f"attn_implementation: {model} computes attention itself and cannot read the masks of "
            f'"{attention}"; {_REMEDY}'
        )
    _judged.add((file, attention))
    if kind is _Kind.OWN:
        warnings.warn(
            f'attn_implementation: {model} computes attention itself and never calls "{attention}":'
            f" its results are right, and no faster; {_REMEDY} to silence this",
            UnusedAttentionWarning,
            stacklevel=2,
        )


def _kind(file: ModuleType, attention: str) -> _Kind:
    """Return what a modeling file does for attention, by the names that it defines."""
    own = vars(file)
    for name, value in own.items():
        if (
            name.endswith("ATTENTION_CLASSES")
            and isinstance(value, dict)
            and attention not in value
        ):
            return _Kind.TABLE
    computes = any(
        "Attention" in name
        and isinstance(value, type)
        and issubclass(value, torch.nn.Module)
        and value.__module__ == file.__name__
        for name, value in own.items()
    )
    if _INTERFACE in own or not computes:
        return _Kind.INTERFACE
    return _Kind.OWN_WITH_MASKS if any(name in own for name in _MASKS) else _Kind.OWN
