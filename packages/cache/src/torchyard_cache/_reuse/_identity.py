"""What an entry depends on beside its tokens or inputs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["digest_of_tensor", "fingerprint", "length_limit", "state_of"]


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    # Frequencies that follow the prompt's length are written in every call.
    limited = length_limit(getattr(module, "config", None)) < math.inf
    for name, buffer in module.named_buffers():
        if not (limited and name.endswith("inv_freq")):
            yield name, buffer


def length_limit(config: Any) -> float:
    """Return the tokens from which on keys depend on how many there are; infinity for never.

    Rotary frequencies of the types ``dynamic`` and ``longrope`` are others from there on, for the
    tokens before, too.
    """
    if not hasattr(config, "get_text_config"):
        return math.inf
    text = config.get_text_config(decoder=True)
    settings = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    nested = [value for value in settings.values() if isinstance(value, dict)]
    limit = math.inf
    for of in (settings, *nested):
        kind = str(of.get("rope_type", of.get("type", "")))
        if "dynamic" in kind or kind == "longrope":
            original = of.get("original_max_position_embeddings")
            original = original or getattr(text, "original_max_position_embeddings", None)
            limit = min(limit, original or text.max_position_embeddings)
    return limit


def state_of(module: nn.Module) -> tuple[Any, ...]:
    """Return what changes where a parameter or a buffer does: place in memory, and version."""
    return tuple(
        (name, _place(tensor), tensor._version, tensor.dtype, tensor.shape)
        for name, tensor in _tensors(module)
    )


def _place(tensor: Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:
        # A packed weight hands no address out, and is replaced as an object.
        return id(tensor)


def digest_of_tensor(tensor: Tensor) -> bytes:
    """Return the sha256 of a tensor's dtype, shape and bytes."""
    plain = tensor.detach().cpu().contiguous()
    hashed = hashlib.sha256(f"{plain.dtype} {tuple(plain.shape)}".encode())
    if plain.numel():
        hashed.update(plain.view(-1).view(torch.uint8).numpy().data)
    return hashed.digest()


def fingerprint(model: nn.Module, salt: str) -> str:
    """Return a digest of a model's weights, configuration and adapter, and of a salt.

    It reads every weight once; :func:`state_of` says when that has to be done again.
    """
    hashed = hashlib.sha256(salt.encode())
    # There a packed weight is a plain tensor; buffers that are not saved are not there.
    saved = model.state_dict()
    for name, tensor in _tensors(model):
        hashed.update(name.encode())
        hashed.update(digest_of_tensor(saved.get(name, tensor)))
    config = getattr(model, "config", None)
    if config is not None:
        hashed.update(json.dumps(config.to_dict(), default=str).encode())
        hashed.update(str(getattr(config, "_attn_implementation", "")).encode())
    hashed.update(f"{type(model).__module__}.{type(model).__qualname__}".encode())
    return hashed.hexdigest()
