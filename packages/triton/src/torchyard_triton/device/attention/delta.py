"""What the softmax takes from each row's gradients."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.attention.tiles import head_start, load_rows, program_place

__all__ = ["attention_delta"]


@triton.jit
def attention_delta(
    out,
    grad_out,
    grad_lse,
    delta,
    heads,
    length,
    tiles,
    LSE: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Compute delta[b, h, q] = grad_out[b, h, q] . out[b, h, q] - grad_lse[b, h, q].

    FlashAttention-2 (arXiv 2307.08691), algorithm 2, line 4; the lse's gradient enters every score
    of its row with the row's weights, as minus delta does. Grid: batch * head * tile of rows.

    Args:
        out, grad_out: [B, H, Sq, V], see ``tiles``. grad_lse: float32 [B, H, Sq], read where LSE.
        delta: float32 [B, H, Sq], contiguous.
    """
    tile, batch_head, b, h = program_place(tiles, heads)
    rows = tile * ROWS + tl.arange(0, ROWS)
    one = load_rows(head_start(out, b, h), out, rows, length, SIZE, PADDED)
    other = load_rows(head_start(grad_out, b, h), grad_out, rows, length, SIZE, PADDED)
    total = tl.sum(one.to(tl.float32) * other.to(tl.float32), 1)
    places = batch_head.to(tl.int64) * length + rows
    if LSE:
        total = total - tl.load(grad_lse + places, mask=rows < length, other=0.0)
    tl.store(delta + places, total, mask=rows < length)
