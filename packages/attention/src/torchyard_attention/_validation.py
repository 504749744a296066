"""Checks of the arguments that attention's functions have in common, and their messages."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments

__all__ = [
    "FLOATS",
    "check_call",
    "check_flags",
    "check_inputs",
    "floats",
    "integers",
    "mask_sizes",
    "parse_dropout",
    "parse_options",
    "positions",
]

FLOATS: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_NESTED: Final = (
    "convert it with torch.nested.to_padded_tensor, and hide the padding with a block mask"
)
# torch's option that names one of its own kernels, and the value that names none.
_BACKEND: Final = "BACKEND"
_ANY: Final = "AUTO"
# A bool is no number of a document or a place: as an index it would choose something else.
_INTEGERS: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# No sequence is longer; sums of a few such numbers are within int64.
_MOST: Final = 1 << 48


def check_call(
    of: str,
    tensors: dict[str, Any],
    score_mod: object,
    scale: object,
    enable_gqa: object,
    *,
    dims: int = 4,
    shape: str = "[B, H, S, D]",
) -> None:
    """Raise TypeError or ValueError that names the argument that is of another kind.

    Args:
        of: the function.
        tensors: query, key and value.
        score_mod, scale, enable_gqa: as of flex_attention.
        dims, shape: of the tensors.
    """
    for name, tensor in tensors.items():
        nested = isinstance(tensor, torch.Tensor) and tensor.is_nested
        arguments.tensor(
            of,
            name,
            tensor,
            dims=dims,
            dtypes=FLOATS,
            shape=shape,
            remedy=_NESTED if nested else "",
        )
    if score_mod is not None:
        arguments.function(of, "score_mod", score_mod)
    if scale is not None:
        arguments.number(of, "scale", scale)
    arguments.boolean(of, "enable_gqa", enable_gqa)


def check_flags(of: str, return_aux: object, implementation: object) -> None:
    """Raise TypeError where a request for auxiliary outputs or a name is none."""
    if return_aux is not None:
        for name in ("lse", "max_scores"):
            if not hasattr(return_aux, name) or isinstance(return_aux, type):
                raise arguments.wrong_kind(
                    of, "return_aux", "AuxRequest(lse=, max_scores=) or None", return_aux
                )
            arguments.boolean(of, f"return_aux.{name}", getattr(return_aux, name))
    if implementation is not None:
        arguments.text(of, "implementation", implementation)


def parse_options(of: str, kernel_options: object) -> tuple[tuple[str, int], ...]:
    """Return the kernel options that are named for a plugin, ``<plugin>.<name>``, sorted by name.

    The others are torch's, for its own kernels, and have no effect here.

    Raises:
        ValueError: torch's BACKEND demands one of torch's kernels.
        TypeError: the options are no dictionary by names, or a plugin's is no integer.
    """
    if kernel_options is None:
        return ()
    given = arguments.instance(of, "kernel_options", kernel_options, dict)
    for name in given:
        arguments.text(of, "kernel_options", name)
    demand = given.get(_BACKEND, _ANY)
    if demand != _ANY:
        raise ValueError(
            f"kernel_options: BACKEND={demand!r} names a backend of torch; expected AUTO; demand "
            f"one with implementation='attention.flex'"
        )
    own = tuple(sorted((name, value) for name, value in given.items() if "." in name))
    for name, value in own:
        if type(value) is not int:
            raise TypeError(f"kernel_options: {name}: expected an integer, got {value!r}")
    return own


def check_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    enable_gqa: bool,
) -> None:
    """Raise ValueError or TypeError that names the argument that does not fit."""
    tensors = (("query", query), ("key", key), ("value", value))
    for name, tensor in tensors:
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise TypeError(
                f"{name}: expected query's dtype and device, {query.dtype} on {query.device}, got "
                f"{tensor.dtype} on {tensor.device}"
            )
    _check_shapes(query, key, value, enable_gqa)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    batch, q_heads, _, head_dim = query.shape
    if key.shape[3] != head_dim:
        raise ValueError(f"key: expected head size {head_dim}, as query, got {key.shape[3]}")
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"value: expected key's batch, heads and length {list(key.shape[:3])}, got "
            f"{list(value.shape[:3])}"
        )
    if key.shape[0] not in (1, batch):
        raise ValueError(
            f"key: expected batch {batch}, as query, or 1 for all of them, got {key.shape[0]}"
        )
    kv_heads = key.shape[1]
    if q_heads != kv_heads and not enable_gqa:
        raise ValueError(
            f"key: expected {q_heads} heads, as query, got {kv_heads}; pass enable_gqa=True for "
            f"grouped queries"
        )
    if kv_heads == 0 or q_heads % kv_heads:
        raise ValueError(
            f"query: expected a multiple of key's {kv_heads} heads, got {q_heads} heads"
        )
    if head_dim == 0:
        raise ValueError("query: expected a head size of at least 1, got 0")


def parse_dropout(dropout_p: Any) -> float:
    """Return the probability as a float; raise TypeError or ValueError where it is none."""
    return arguments.number("flex_attention", "dropout_p", dropout_p, least=0, most=1)


def positions(of: str, name: str, value: object, *, least: int = 0) -> int:
    """Return a number of positions."""
    found = arguments.integer(of, name, value, least=least)
    if found > _MOST:
        raise arguments.wrong_value(of, name, "less than 2**48 positions", found)
    return found


def mask_sizes(
    of: str, B: object, H: object, Q_LEN: object, KV_LEN: object
) -> tuple[int, int, int, int]:
    """Return batches, heads, queries and keys of a mask; 1 where batches or heads are None."""
    return (
        1 if B is None else positions(of, "B", B, least=1),
        1 if H is None else positions(of, "H", H, least=1),
        positions(of, "Q_LEN", Q_LEN),
        positions(of, "KV_LEN", KV_LEN),
    )


def integers(of: str, name: str, value: object, shape: str, dims: tuple[int, ...] = (1,)) -> Tensor:
    """Return a tensor of integers."""
    return arguments.tensor(of, name, value, dims=dims, dtypes=_INTEGERS, shape=f"integers {shape}")


def floats(of: str, name: str, value: object, shape: str, dims: tuple[int, ...]) -> Tensor:
    """Return a tensor of floating point numbers."""
    return arguments.tensor(of, name, value, dims=dims, dtypes=FLOATS, shape=shape)
