"""Attention by a library's ``flash_attn_func``, if it is one that was read."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.fused import Piece, exact_forward, finite, pieces
from torchyard_rocm.attention._libraries import Library

__all__ = ["LibraryForward", "UnknownFunctionError", "function_of"]

_NAME: Final = "flash_attn_func"
# Needs no second way where hidden values are not finite.
_INSTEAD: Final = "rocm.triton"

Function = Callable[..., Any]


class UnknownFunctionError(RuntimeError):
    """The installed library's function takes or returns something else than what was read."""


def function_of(library: Library) -> Function:
    """Import a library and return its function.

    Raises:
        ImportError: the library does not import.
        UnknownFunctionError: its function is missing, or has other parameters or defaults than
            each that was read; names the first that differs.
    """
    module = importlib.import_module(library.module)
    found = getattr(module, _NAME, None)
    if not callable(found):
        raise UnknownFunctionError(
            f"{_described(library)}: expected {library.module}.{_NAME}, found none in "
            f"{getattr(module, '__file__', None)}; {library.install}"
        )
    function: Function = found
    taken = _parameters(function)
    if taken not in library.signatures.values():
        *_, (newest, expected) = library.signatures.items()
        raise UnknownFunctionError(
            f"{_described(library)}: {_NAME}: {_first_difference(expected, taken)} (as in "
            f"{newest}); install a version that was read: {'; '.join(library.signatures)}"
        )
    return function


def _described(library: Library) -> str:
    try:
        found = version(library.distribution)
    except PackageNotFoundError:
        found = "of no version"
    return f"rocm.{library.name}: {library.distribution} {found}"


def _parameters(function: Function) -> list[str]:
    """Return parameters with their defaults, and no annotations."""
    return [
        str(item.replace(annotation=inspect.Parameter.empty))
        for item in inspect.signature(function).parameters.values()
    ]


def _first_difference(expected: Sequence[str], taken: Sequence[str]) -> str:
    for place, wanted in enumerate(expected):
        got = taken[place] if place < len(taken) else "none"
        if got != wanted:
            return f"expected parameter {place} to be {wanted}, got {got}"
    return f"expected no parameter {len(expected)}, got {taken[len(expected)]}"


class LibraryForward:
    """Computes ``attention/1``."""

    def __init__(self, library: Library, function: Function) -> None:
        self._library = library
        self._function = function

    def __call__(self, call: AttentionCall) -> AttentionResult:
        """Compute the outputs.

        Rows and keys of a causal piece are as many: the library aligns the mask at the last of
        both, and the contract at the first. Where a mask hides keys and an output is not finite,
        ``attention.tiled`` computes the call again.
        """
        rows, keys = call.query.shape[2], call.key.shape[2]
        masked = call.mask is not None
        outs, lses = [], []
        with torch.no_grad():
            for piece in pieces(rows, keys, masked):
                out, lse = self._compute(call, piece)
                outs.append(out)
                lses.append(lse)
            out = _joined(outs)
            if masked and not finite(out):
                return exact_forward(call, instead=_INSTEAD)
            return AttentionResult(out, _joined(lses) if call.lse else None)

    def _compute(self, call: AttentionCall, piece: Piece) -> tuple[Tensor, Tensor]:
        """Return out [B, Hq, S, V] and lse [B, Hq, S] of a piece's rows S."""
        begin, end = piece.rows
        query = _turned(call.query[:, :, begin:end])
        key, value = (_turned(tensor[:, :, : piece.keys]) for tensor in (call.key, call.value))
        out, lse, *_ = self._function(
            *(query, key, value),
            dropout_p=0.0,
            softmax_scale=call.scale,
            causal=piece.causal,
            **{self._library.lse: True},
        )
        self._check("out", out, (*query.shape[:3], value.shape[3]), query.dtype)
        self._check("lse", lse, (query.shape[0], query.shape[2], query.shape[1]), torch.float32)
        return out.transpose(1, 2), lse

    def _check(self, name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        if tensor.shape != shape or tensor.dtype != dtype:
            raise UnknownFunctionError(
                f"{_described(self._library)}: {name}: expected {dtype} {list(shape)}, got "
                f"{tensor.dtype} {list(tensor.shape)}; demand another implementation with "
                f"TORCHYARD_USE, such as attention={_INSTEAD}"
            )


def _turned(tensor: Tensor) -> Tensor:
    """Return [B, S, H, D] with a contiguous last dimension."""
    turned = tensor.transpose(1, 2)
    return turned if turned.stride(-1) == 1 else turned.contiguous()


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, dim=2)
