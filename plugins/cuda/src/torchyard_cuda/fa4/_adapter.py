"""Attention by FlashAttention-4's private functions, of a version that was read.

torch's own ways in are not taken: ``activate_flash_attention_impl("FA4")`` of torch 2.13 expects
two results where newer betas return more, and the backend FLASH of its flex_attention drops the
block lists of a mask whose mask_mod is trivial.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.contract import (
    AttentionCall,
    AttentionGradients,
    AttentionResult,
    MaskBlocks,
)
from torchyard_attention.fused import exact_backward, exact_forward, finite
from torchyard_cuda.fa4._block_lists import by_columns, by_rows
from torchyard_cuda.fa4._known import Signatures, install_command, known
from torchyard_cuda.fa4._program import CutePrograms, auxiliary, lower_mask, lower_score
from torchyard_programs import Traits

__all__ = ["Fa4Backward", "Fa4Forward", "Functions", "UnknownVersionError", "functions"]

# The causal mask as a program, for calls with more rows than keys: FlashAttention-4 aligns its own
# at the last key.
_CAUSAL: Final = '["ge",["q","k"],{}]\n"%0"'
# Needs no second way where hidden values are not finite.
_INSTEAD: Final = "cuda.triton"


class UnknownVersionError(RuntimeError):
    """The installed flash-attn-4 has other functions than those that were read."""


@dataclass(frozen=True, slots=True)
class Functions:
    """The private functions of flash_attn.cute.interface.

    Attributes:
        forward: returns out, lse and more.
        backward: returns the gradients of query, key and value, and perhaps more.
        lists: returns a mask's lists of blocks as both take them.
    """

    forward: Callable[..., Sequence[Any]]
    backward: Callable[..., Sequence[Any]]
    lists: Callable[..., Any]


@lru_cache(maxsize=1)
def functions() -> Functions:
    """Import flash_attn and return its functions.

    Raises:
        UnknownVersionError: they are not those that were read.
    """
    with _process_as_it_was():
        from flash_attn.cute import interface
        from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

    found = version("flash-attn-4")
    expected = known().get(found)
    if expected is None:
        raise UnknownVersionError(
            f"cuda.fa4: flash-attn-4: expected one of {', '.join(known())}, got {found}; "
            f"{install_command()}"
        )
    taken = Functions(interface._flash_attn_fwd, interface._flash_attn_bwd, BlockSparseTensorsTorch)
    check_signatures(taken, expected)
    return taken


@contextmanager
def _process_as_it_was() -> Iterator[None]:
    """Undo what an import changes for the whole program.

    CUTLASS' DSL prints every uncaught exception of the process by a hook of its own, and adds
    filters of warnings.
    """
    hook = sys.excepthook
    with warnings.catch_warnings():
        try:
            yield
        finally:
            sys.excepthook = hook


def check_signatures(taken: Functions, expected: Signatures) -> None:
    """Compare the arguments that functions take with those that were read.

    Raises:
        UnknownVersionError: one that is used is missing; names it.
    """
    for name in ("forward", "backward", "lists"):
        parameters = inspect.signature(getattr(taken, name)).parameters
        lacking = [item for item in getattr(expected, name) if item not in parameters]
        if lacking:
            raise UnknownVersionError(
                f"cuda.fa4: flash-attn-4's {name}: expected an argument {lacking[0]}, found none; "
                f"{install_command()}"
            )


@dataclass(frozen=True, slots=True)
class _Arguments:
    """What of a call is passed on, [B, S, H, D], of the keys that are seen.

    ``blocks`` are the lists that a mask's program is evaluated by; None: everywhere.
    """

    inputs: tuple[Tensor, Tensor, Tensor]
    causal: bool
    mask: CutePrograms | None
    score: CutePrograms | None
    tensors: list[Tensor]
    blocks: MaskBlocks | None

    def keywords(self, taken: Functions, *, backward: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"causal": self.causal}
        if self.score is not None:
            functions = self.score.functions()
            found["score_mod"] = functions[0]
            if backward:
                found["score_mod_bwd"] = functions[1]
        if self.mask is not None:
            (found["mask_mod"],) = self.mask.functions()
        if self.blocks is not None:
            of = by_columns if backward else by_rows
            found["block_sparse_tensors"] = taken.lists(**of(self.blocks, self.inputs[1].shape[1]))
        if self.tensors:
            found["aux_tensors"] = self.tensors
        return found


def _arguments(call: AttentionCall) -> _Arguments:
    rows, keys = call.query.shape[2], call.key.shape[2]
    source = None if call.mask is None or call.mask.causal else call.mask.source
    # What is no program is the causal mask: other masks without one are refused.
    causal = call.mask is not None and source is None
    # Of a causal mask the keys behind the last row are hidden, and then rows and keys are as many.
    seen = min(rows, keys) if causal else keys
    inputs = (
        _turned(call.query),
        _turned(call.key[:, :, :seen]),
        _turned(call.value[:, :, :seen]),
    )
    score = None
    tensors: list[Tensor] = []
    if call.score_mod is not None:
        captured = call.score_mod.captured
        score = lower_score(call.score_mod.text, _traits(captured))
        tensors = auxiliary(score, captured)
    mask = blocks = None
    if source is not None:
        mask = lower_mask(source.text, _traits(source.captured), first=len(tensors))
        tensors += auxiliary(mask, source.captured)
        blocks = call.mask
    elif causal and rows > keys:
        mask = lower_mask(_CAUSAL, ())
    return _Arguments(inputs, causal and mask is None, mask, score, tensors, blocks)


def _traits(captured: Sequence[Tensor]) -> Traits:
    return tuple((tensor.dtype, tensor.ndim) for tensor in captured)


def _turned(tensor: Tensor) -> Tensor:
    """Return [B, S, H, D] with a contiguous last dimension, as the functions take it."""
    turned = tensor.transpose(1, 2)
    return turned if turned.stride(-1) == 1 else turned.contiguous()


class Fa4Forward:
    """Computes ``attention/1``."""

    def __init__(self, taken: Functions) -> None:
        self._taken = taken

    def __call__(self, call: AttentionCall) -> AttentionResult:
        """Compute the outputs; compiles for seconds when a program or head size is first seen."""
        arguments = _arguments(call)
        with torch.no_grad():
            out, lse, *_ = self._taken.forward(
                *arguments.inputs,
                softmax_scale=call.scale,
                return_lse=True,
                **arguments.keywords(self._taken, backward=False),
            )
            out = out.transpose(1, 2).contiguous()
            if (call.mask is not None or call.score_mod is not None) and not finite(out):
                return exact_forward(call, instead=_INSTEAD)
        return AttentionResult(out, lse.contiguous() if call.lse else None)


class Fa4Backward:
    """Computes ``attention_backward/1``."""

    def __init__(self, taken: Functions) -> None:
        self._taken = taken

    def __call__(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
    ) -> AttentionGradients:
        """Compute the gradients; compiles as the forward."""
        if grad_lse is not None and call.query.shape[3] > 128:
            # Its kernels for wide heads on sm_10x have no place for it.
            return exact_backward(call, out, lse, grad_out, grad_lse, instead=_INSTEAD)
        arguments = _arguments(call)
        with torch.no_grad():
            found = self._taken.backward(
                *arguments.inputs,
                _turned(out),
                _turned(grad_out),
                lse.contiguous(),
                softmax_scale=call.scale,
                deterministic=torch.are_deterministic_algorithms_enabled(),
                dlse=None if grad_lse is None else grad_lse.float().contiguous(),
                **arguments.keywords(self._taken, backward=True),
            )
            query, key, value = (tensor.transpose(1, 2) for tensor in found[:3])
            gradients = (
                query.contiguous(),
                _widened(key, call.key),
                _widened(value, call.value),
            )
            hides = call.mask is not None or call.score_mod is not None
            if hides and not finite(*gradients):
                return exact_backward(call, out, lse, grad_out, grad_lse, instead=_INSTEAD)
        captured = () if call.score_mod is None else (None,) * len(call.score_mod.captured)
        return AttentionGradients(*gradients, captured)


def _widened(gradient: Tensor, like: Tensor) -> Tensor:
    """Return the gradient of all keys, 0 of those that no row sees."""
    hidden = like.shape[2] - gradient.shape[2]
    if not hidden:
        return gradient.contiguous()
    return torch.nn.functional.pad(gradient, (0, 0, 0, hidden))
