"""A mask's program travels beside its bits wherever it describes them, and nowhere else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torchyard_attention import BlockMask, create_block_mask, explain, flex_attention
from torchyard_attention._block_mask._operand import mask_operand
from torchyard_attention._mods._evaluate import evaluate_mask
from torchyard_attention._ops import _computation
from torchyard_attention._ops._attention import dispatched
from torchyard_attention.contract import (
    DEFINITIONS,
    FORWARD,
    AttentionCall,
    AttentionRequest,
    MaskBlocks,
    MaskKind,
)
from torchyard_attention.masks import document, sliding_window
from torchyard_attention.visibility import dense_visibility

_BATCH, _HEADS, _LENGTH = 2, 4, 72
# With options a call is none that a fast path computes without a decision.
_OPTIONS = {"cpu.rows_per_item": 64}
_IDS = torch.arange(_LENGTH) // 20
_WIDTHS = torch.tensor([3, 9, 20, 50])


def _window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q - k).abs() <= 9


def _causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def _document(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (_IDS[q] == _IDS[k]) & (q >= k)


def _of_head(b: Any, h: Any, q: Any, k: Any) -> Any:
    return ((q - k).abs() <= _WIDTHS[h]) | (k == b)


def _mask(mask_mod: Any = _document, **changes: Any) -> BlockMask:
    return create_block_mask(mask_mod, _BATCH, _HEADS, _LENGTH, _LENGTH, "cpu", 16, **changes)


def _query(length: int = _LENGTH) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(_BATCH, _HEADS, length, 8, generator=generator)


def _blocks(mask: BlockMask) -> MaskBlocks:
    q_length, kv_length = mask.seq_lengths
    blocks = mask_operand(mask, _query(q_length), _query(kv_length))
    assert blocks is not None
    return blocks


def _described(mask: MaskBlocks, lengths: tuple[int, int]) -> Tensor:
    """Return which pairs a mask shows if the program replaces the bits of its partial blocks."""
    assert mask.source is not None
    b, h, q, k = (torch.arange(size) for size in (_BATCH, _HEADS, *lengths))
    program = evaluate_mask(mask.source.text, b, h, q, k, mask.source.captured)
    whole = dense_visibility(replace(mask, bits=torch.zeros_like(mask.bits)), *lengths)
    listed = dense_visibility(replace(mask, bits=torch.full_like(mask.bits, 255)), *lengths)
    return whole | (listed & program)


def _resized(mask: BlockMask) -> BlockMask:
    mask.seq_lengths = (_LENGTH - 3, _LENGTH - 5)
    return mask


def _renamed(mask: BlockMask) -> BlockMask:
    mask.mask_mod = _of_head
    return mask


def _listed(mask: BlockMask) -> BlockMask:
    """Return a mask whose lists are another's, so that the program says more than it shows."""
    return BlockMask.from_kv_blocks(
        mask.kv_num_blocks,
        mask.kv_indices,
        BLOCK_SIZE=16,
        mask_mod=_window,
        seq_lengths=mask.seq_lengths,
    )


_KEEPING: dict[str, Callable[[BlockMask], BlockMask]] = {
    "as it was made": lambda mask: mask,
    "moved": lambda mask: mask.to("cpu"),
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    "stored": lambda mask: pickle.loads(pickle.dumps(mask)),
    "a tree": lambda mask: pytree.tree_map(lambda leaf: leaf, mask),
    "of the first positions": lambda mask: mask._adjust(50, 40),
    "of other lengths": _resized,
    "of another function": _renamed,
    "of other lists": _listed,
}
_LOSING: dict[str, Callable[[BlockMask], BlockMask]] = {
    "rows": lambda mask: mask[:, :, 1:],
    "blocks in another order": lambda mask: mask.part([1, 0, 2, 3], [0, 1, 2, 3]),
    "the first blocks": lambda mask: mask.part([0, 1], [0, 1]),
    "without its program": lambda mask: mask.without_program(),
}


@pytest.mark.parametrize("name", _KEEPING)
@pytest.mark.parametrize("mask_mod", [_window, _document, _of_head, sliding_window(9)])
def test_program_and_bits_agree(name: str, mask_mod: Any) -> None:
    mask = _KEEPING[name](_mask(mask_mod))
    blocks = _blocks(mask)
    seen = dense_visibility(blocks, *mask.seq_lengths)
    assert torch.equal(_described(blocks, mask.seq_lengths), seen.expand(_BATCH, _HEADS, -1, -1))


def test_whole_blocks_among_the_partial_ones_agree_too() -> None:
    mask = _mask(_window, separate_full_blocks=False)
    blocks = _blocks(mask)
    assert not blocks.full_kv_num_blocks.any()
    seen = dense_visibility(blocks, *mask.seq_lengths)
    assert torch.equal(_described(blocks, mask.seq_lengths), seen)


@pytest.mark.parametrize("name", _LOSING)
def test_a_part_has_no_program(name: str) -> None:
    mask = _LOSING[name](_mask())
    blocks = _blocks(mask)
    assert blocks.source is None


def test_a_captured_tensor_that_changes_changes_both() -> None:
    ids = _IDS.clone()
    mask = _mask(lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k))
    ids.zero_()
    (call,) = _seen(lambda: _attend(mask))
    assert call.mask is not None
    lengths = mask.seq_lengths
    assert torch.equal(_described(call.mask, lengths), dense_visibility(call.mask, *lengths))


def _attend(mask: BlockMask) -> Any:
    return flex_attention(_query(), _query(), _query(), block_mask=mask, kernel_options=_OPTIONS)


def _seen(function: Callable[[], Any]) -> list[AttentionCall]:
    """Return the calls that implementations are chosen for while a function runs."""
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        original = _computation.request_of

        def recorded(call: AttentionCall, *, deterministic: bool) -> AttentionRequest:
            calls.append(call)
            return original(call, deterministic=deterministic)

        patch.setattr(_computation, "request_of", recorded)
        function()
    return calls


@pytest.mark.parametrize("mask_mod", [_window, _document])
def test_every_way_of_a_call_keeps_the_program(mask_mod: Any) -> None:
    mask = _mask(mask_mod)

    def trained() -> None:
        query = _query().requires_grad_()
        flex_attention(query, _query(), _query(), block_mask=mask).sum().backward()

    def compiled() -> None:
        def attend(query: Tensor) -> Any:
            inside = create_block_mask(mask_mod, _BATCH, _HEADS, _LENGTH, _LENGTH, "cpu", 16)
            return flex_attention(query, query, query, block_mask=inside, kernel_options=_OPTIONS)

        torch.compile(attend, backend="eager", fullgraph=True)(_query())

    def inside() -> None:
        def total(query: Tensor) -> Tensor:
            found: Tensor = flex_attention(query, query, query, block_mask=mask).sum()
            return found

        torch.func.grad(total)(_query())

    calls = _seen(trained)
    assert len(calls) == 2
    forward = calls[0]
    for way in (compiled, inside, lambda: dispatched(forward)):
        found = _seen(way)
        assert found
        calls += found
    for call in calls:
        assert call.mask is not None
        assert call.mask.source is not None
        assert call.mask.source.text == mask.mask_text
        captured = call.mask.source.captured
        assert [tensor.tolist() for tensor in captured] == [t.tolist() for t in mask.mask_captured]
        request = _computation.request_of(call, deterministic=False)
        assert request.mask_text == mask.mask_text


def test_a_compiled_graph_takes_any_mask_that_captures_nothing_and_the_program_of_others() -> None:
    graphs = []

    def counted(module: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(module)
        return module.forward

    def attend(query: Tensor, mask: BlockMask) -> Any:
        return flex_attention(query, query, query, block_mask=mask, kernel_options=_OPTIONS)

    compiled = torch.compile(attend, backend=counted, fullgraph=True)
    calls = []
    for width in range(3, 7):
        mask = _mask(lambda b, h, q, k, width=width: (q - k).abs() <= width)
        calls += _seen(lambda mask=mask: compiled(_query(), mask))
    assert len(graphs) == 1
    assert len(calls) == 4
    for call in calls:
        assert call.mask is not None
        assert call.mask.source is None
    (call,) = _seen(lambda: compiled(_query(), _mask(_document)))
    assert call.mask is not None
    assert call.mask.source is not None


def test_a_program_that_reads_the_batch_is_not_that_of_a_folded_one() -> None:
    mask = create_block_mask(_of_head, 1, _HEADS, _LENGTH, _LENGTH, "cpu", 16)
    queries = torch.stack([_query()[:1], _query()[1:]])

    def attend(query: Tensor) -> Any:
        return flex_attention(query, query, query, block_mask=mask)

    (call,) = _seen(lambda: torch.vmap(attend)(queries))
    assert call.query.shape[0] == 2
    assert call.mask is not None
    assert call.mask.source is None


def test_what_is_negated_lazily_is_stored_for_kernels() -> None:
    widths = torch.view_as_complex(torch.randn(_LENGTH, 2)).conj().imag
    assert widths.is_neg()
    mask = _mask(lambda b, h, q, k: (widths[q] > 0.0) & (q >= k))
    (call,) = _seen(lambda: _attend(mask))
    assert call.mask is not None
    assert call.mask.source is not None
    (captured,) = call.mask.source.captured
    assert not captured.is_neg()
    assert torch.equal(captured, widths)


def _request(mask_mod: Any) -> AttentionRequest:
    request = explain(_query(), _query(), _query(), block_mask=_mask(mask_mod)).request
    assert isinstance(request, AttentionRequest)
    return request


def test_a_request_says_program_and_captured_tensors() -> None:
    request = _request(_of_head)
    assert request.mask is MaskKind.BLOCKS
    assert request.mask_text == _mask(_of_head).mask_text
    assert request.mask_captured == (("int64", 1),)
    assert request.bucket() == _request(_window).bucket()
    assert _request(document(_IDS)).mask_text


def test_requests_of_other_masks_say_nothing_of_programs() -> None:
    assert _request(_causal).mask is MaskKind.CAUSAL
    general = lambda b, h, q, k: torch.stack([q - k, k - q]).amax() < 9  # noqa: E731
    for request in (_request(_causal), _request(general)):
        assert (request.mask_text, request.mask_captured) == ("", ())


def test_explain_takes_a_masks_program_as_text() -> None:
    text = _mask(_of_head).mask_text
    given = {"mask": "blocks", "mask_text": text.replace("\n", "\\n"), "mask_captured": "int64:1"}
    request = DEFINITIONS[FORWARD].request(given)
    assert (request.mask_text, request.mask_captured) == (text, (("int64", 1),))
