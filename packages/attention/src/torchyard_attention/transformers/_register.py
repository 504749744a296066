"""``register``: one name for an attention and the masks that it reads."""

from __future__ import annotations

import inspect
from functools import partial
from importlib import import_module
from typing import Any, Final

from torchyard import arguments
from torchyard_attention.transformers._attention import attention
from torchyard_attention.transformers._continuous import allow
from torchyard_attention.transformers._interface import check_models
from torchyard_attention.transformers._mask import prepare

# transformers looks for these in the name and then takes the attention for another.
_TAKEN: Final = ("eager", "sdpa", "flash", "flex_attention", "paged", "/")

# What transformers passes to a mask function since its masks begin at offsets.
_MASK_ARGUMENTS: Final = ("batch_size", "q_length", "kv_length", "q_offset", "kv_offset")


def register(name: str = "torchyard", *, implementation: str | None = None) -> None:
    """Register attention and its masks with transformers.

    Afterwards ``attn_implementation=name`` works for any model that takes the attention interface,
    also in ``generate_batch``, transformers' continuous batching.
    Both are registered together, because without its mask function an attention gets no mask, and
    nothing says so. Registering again replaces. A model that is built with the name later and does
    not take the interface raises UnsupportedArgumentError, or warns once that it never calls
    attention (UnusedAttentionWarning).

    Args:
        name: for ``attn_implementation``.
        implementation: demand this implementation of ``attention/1`` in every call; an error where
            it cannot. None: the best one for each.

    Raises:
        ImportError: transformers is not installed, or has no attention interface of this kind.
        ValueError: transformers would take the name for another attention.
    """
    arguments.text("register", "name", name)
    if implementation is not None:
        arguments.text("register", "implementation", implementation)
    taken = [part for part in _TAKEN if part in name]
    if taken:
        raise ValueError(
            f"name: expected one without {', '.join(map(repr, _TAKEN))}, which transformers takes "
            f"for an attention of its own, got {name!r}"
        )
    transformers = _transformers()
    transformers.AttentionInterface.register(name, partial(attention, implementation))
    transformers.AttentionMaskInterface.register(name, prepare)
    check_models(name)
    allow(name)


def _transformers() -> Any:
    """Return transformers if it has what is needed, by feature, not by version."""
    try:
        transformers = import_module("transformers")
        masking = import_module("transformers.masking_utils")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"transformers: expected to be installed, got {error}; "
            "pip install torchyard-attention[transformers]"
        ) from error
    missing = [
        name
        for name in ("AttentionInterface", "AttentionMaskInterface")
        if not hasattr(transformers, name)
    ]
    takes = inspect.signature(masking.sdpa_mask).parameters
    missing += [f"sdpa_mask({name})" for name in _MASK_ARGUMENTS if name not in takes]
    if missing:
        raise ImportError(
            f"transformers {transformers.__version__}: expected an attention interface whose masks "
            f"have offsets, found no {', '.join(missing)}; "
            "pip install torchyard-attention[transformers]"
        )
    return transformers
