"""Checks of what kind the arguments are that the attention functions have in common."""

from __future__ import annotations

from typing import Any, Final

import torch

from torchyard import arguments

__all__ = ["FLOATS", "check_call", "check_flags", "check_options"]

FLOATS: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_NESTED: Final = (
    "convert it with torch.nested.to_padded_tensor, and hide the padding with a block mask"
)


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


def check_options(of: str, kernel_options: object) -> None:
    """Raise TypeError where kernel options are not None or a dictionary by names."""
    if kernel_options is None:
        return
    for name in arguments.instance(of, "kernel_options", kernel_options, dict):
        arguments.text(of, "kernel_options", name)
