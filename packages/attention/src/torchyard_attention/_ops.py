"""The ops that torch sees: ``torch.ops.torchyard_attention.*``.

The choice of implementation is made inside of the op, from sizes and dtypes only, so eager calls,
compiled graphs, exported programs and fake tensors take the same decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._guards import detect_fake_mode

from torchyard_attention import _mask_blocks
from torchyard_attention._arguments import COMMON, Arguments, or_none
from torchyard_attention._autograd import recorded
from torchyard_attention._computation import gradients, outputs
from torchyard_attention._direct import is_plain
from torchyard_attention._dispatch_state import as_outside_of_ops
from torchyard_attention._layout import empty_in_order
from torchyard_attention._operators import OPERATORS
from torchyard_attention._request import lse_dtype
from torchyard_attention._served_op import make_recognisable, op_outputs, served_op
from torchyard_attention._transforms import _functions
from torchyard_attention._transforms._refused import constant
from torchyard_attention.contract import AttentionResult, MaskBlocks

# mask is None, or the six tensors of MaskBlocks in their order. A list with nothing in it is None,
# because an AOTInductor package hands an op no list for an empty one. The backward returns
# gradients of those captured tensors alone that captured_grad marks.
_COMMON: Final = (
    "Tensor query, Tensor key, Tensor value, Tensor[]? score_captured, str score_text, "
    "Tensor[]? mask, int[] block_size, bool causal, Tensor[]? mask_captured, str mask_text, "
    "int[]? mask_versions, float scale, str options"
)
# Last and with defaults, so that programs that were exported without it stay what they are.
_DROPOUT: Final = "float dropout_p=0.0, Tensor? dropout_seed=None"
_FORWARD_SCHEMA: Final = (
    f"forward({_COMMON}, bool lse, bool max_scores, bool grad, str use, {_DROPOUT}) "
    "-> (Tensor, Tensor, Tensor)"
)
_BACKWARD_SCHEMA: Final = (
    f"backward(Tensor grad_out, Tensor? grad_lse, Tensor out, Tensor lse, {_COMMON}, "
    f"bool[] captured_grad, {_DROPOUT}) -> (Tensor, Tensor, Tensor, Tensor[])"
)
_BLOCK_MASK_SCHEMA: Final = (
    "block_mask(Tensor anchor, Tensor[]? captured, str text, SymInt batch, SymInt heads, "
    "SymInt q_length, SymInt kv_length, int rows, int keys) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_PARTIAL_BITS_SCHEMA: Final = (
    "partial_bits(Tensor kv_num_blocks, Tensor kv_indices, Tensor full_kv_num_blocks, "
    "Tensor full_kv_indices, Tensor[]? captured, str text, "
    "SymInt q_length, SymInt kv_length, int rows, int keys) -> Tensor"
)


def block_mask(
    text: str,
    captured: Sequence[Tensor],
    sizes: tuple[int, int, int, int],
    block_size: tuple[int, int],
    device: torch.device,
) -> MaskBlocks:
    """Evaluate a mask program everywhere; see ``_mask_blocks.blocks_of``."""
    anchor = torch.empty(0, device=device)
    tensors = OPERATORS["block_mask"](
        anchor, or_none([tensor.detach() for tensor in captured]), text, *sizes, *block_size
    )
    return MaskBlocks(block_size, *tensors)


def partial_bits(
    text: str,
    captured: Sequence[Tensor],
    lists: tuple[Tensor, Tensor, Tensor, Tensor],
    lengths: tuple[int, int],
    block_size: tuple[int, int],
) -> Tensor:
    """Check lists of blocks and evaluate a mask program on the partial ones.

    Args:
        text: the program.
        captured: its captured tensors.
        lists: kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices.
        lengths: (Sq, Sk).
        block_size: (BQ, BK).
    """
    result: Tensor = OPERATORS["partial_bits"](
        *lists, or_none([tensor.detach() for tensor in captured]), text, *lengths, *block_size
    )
    return result


def forward(
    arguments: Arguments, *, lse: bool, max_scores: bool, grad: bool, use: str | None
) -> AttentionResult:
    """Compute the outputs, through torch's dispatcher where anything else takes part in the call.

    Args:
        arguments: the call.
        lse, max_scores: whether they are outputs.
        grad: whether gradients will be asked for.
        use: the implementation that is demanded, or None.
    """
    if is_plain((*arguments[:3], *arguments.score_captured)):
        attend = recorded if grad else outputs
        return attend(arguments, lse, max_scores, use)
    found = OPERATORS["forward"](
        *arguments.given(), lse, max_scores, grad, use or "", *arguments.dropout()
    )
    return AttentionResult(found[0], found[1] if lse else None, found[2] if max_scores else None)


def _forward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    common, (lse, max_scores, grad, use, *dropout) = list(args[:COMMON]), args[COMMON:]
    if not (grad or use or dropout):
        make_recognisable(common)
    arguments = Arguments.of(common, dropout)
    result = outputs(arguments, lse, max_scores, use or None, grad=grad)
    return op_outputs(arguments.query, result.out, result.lse, result.max_scores)


def _forward_fake(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, value = args[0], args[2]
    lse, max_scores, grad = args[COMMON : COMMON + 3]
    rows = query.shape[:3]
    dtype = lse_dtype(query)
    return (
        empty_in_order((*rows, value.shape[3]), query),
        query.new_empty(rows if lse or grad else (0,), dtype=dtype),
        query.new_empty(rows if max_scores else (0,), dtype=dtype),
    )


def _backward(
    grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, lse: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    common, (captured_grad, *dropout) = rest[:COMMON], rest[COMMON:]
    grads = gradients(Arguments.of(common, dropout), grad_out, grad_lse, out, lse, captured_grad)
    captured = [gradient for gradient in grads.captured if gradient is not None]
    return grads.query, grads.key, grads.value, captured


def _backward_fake(
    grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, lse: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    query, key, value, score_captured = rest[:4]
    return (
        query.new_empty(query.shape),
        key.new_empty(key.shape),
        value.new_empty(value.shape),
        [
            tensor.new_empty(tensor.shape)
            for tensor, wanted in zip(score_captured or (), rest[COMMON], strict=True)
            if wanted
        ],
    )


def _block_mask(
    anchor: Tensor,
    captured: list[Tensor] | None,
    text: str,
    batch: int,
    heads: int,
    q_length: int,
    kv_length: int,
    rows: int,
    keys: int,
) -> tuple[Tensor, ...]:
    sizes = (batch, heads, q_length, kv_length)
    return _tensors(
        _mask_blocks.blocks_of(text, tuple(captured or ()), sizes, (rows, keys), anchor.device)
    )


def _block_mask_fake(
    anchor: Tensor,
    captured: list[Tensor] | None,
    text: str,
    batch: int,
    heads: int,
    q_length: int,
    kv_length: int,
    rows: int,
    keys: int,
) -> tuple[Tensor, ...]:
    counts = (batch, heads, -(-q_length // rows))
    lists = (*counts, -(-kv_length // keys))
    partial = _open_size()
    return (
        anchor.new_empty(counts, dtype=torch.int32),
        anchor.new_empty(lists, dtype=torch.int32),
        anchor.new_empty(counts, dtype=torch.int32),
        anchor.new_empty(lists, dtype=torch.int32),
        anchor.new_empty((partial, rows, -(-keys // 8)), dtype=torch.uint8),
        anchor.new_empty(counts, dtype=torch.int64),
    )


def _partial_bits(*args: Any) -> Tensor:
    *lists, captured, text, q_length, kv_length, rows, keys = args
    _mask_blocks.check_lists(*lists, blocks=-(-kv_length // keys))
    return _mask_blocks.partial_bits(
        text, tuple(captured or ()), lists[0], lists[1], (q_length, kv_length), (rows, keys)
    )


def _partial_bits_fake(*args: Any) -> Tensor:
    rows, keys = args[-2:]
    partial = _open_size()
    bits: Tensor = args[1].new_empty((partial, rows, -(-keys // 8)), dtype=torch.uint8)
    return bits


def _open_size() -> Any:
    """Return a size that data decides, to fake tensors.

    torch breaks a graph at an op with such a size, unless fullgraph=True or a setting says that
    what follows can do with it. What follows here is an op of ours, which can.
    """
    mode = detect_fake_mode()
    shape_env = None if mode is None else mode.shape_env
    if shape_env is None or shape_env.allow_dynamic_output_shape_ops:
        return torch.library.get_ctx().new_dynamic_size()
    size = shape_env.create_unbacked_symint()
    torch._check(size >= 0)  # type: ignore[no-untyped-call]
    return size


def _tensors(blocks: MaskBlocks) -> tuple[Tensor, ...]:
    return (
        blocks.kv_num_blocks,
        blocks.kv_indices,
        blocks.full_kv_num_blocks,
        blocks.full_kv_indices,
        blocks.bits,
        blocks.first_partial,
    )


def _isolated(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with as_outside_of_ops():
            # Mostly so already: in inference, and below autograd's formula.
            if not torch.is_grad_enabled():
                return kernel(*args)
            with torch.no_grad():
                return kernel(*args)

    return run


_isolated_forward: Final = _isolated(_forward)


def _forward_kernel(*args: Any) -> Any:
    # What serves a call directly uses neither autograd nor vmap.
    found = served_op(args)
    return _isolated_forward(*args) if found is None else found


OPERATORS.define(
    _FORWARD_SCHEMA,
    _forward_kernel,
    _forward_fake,
    transformed=_functions.forward,
)
OPERATORS.define(
    _BACKWARD_SCHEMA, _isolated(_backward), _backward_fake, transformed=_functions.backward
)
_OF_MASKS: Final = constant(
    "create_block_mask",
    derivative=None,
    mapped=(
        "expected a mask_mod whose captured tensors are the same for all, got one that is mapped "
        "over, and masks may differ in their number of blocks; make the mask outside of vmap, with "
        "a batch dimension where it differs, and pass the whole batch without vmap"
    ),
)
OPERATORS.define(
    _BLOCK_MASK_SCHEMA, _isolated(_block_mask), _block_mask_fake, transformed=_OF_MASKS
)
OPERATORS.define(
    _PARTIAL_BITS_SCHEMA, _isolated(_partial_bits), _partial_bits_fake, transformed=_OF_MASKS
)
