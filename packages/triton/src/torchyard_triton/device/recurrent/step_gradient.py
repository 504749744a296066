"""The gradients of one step: what reached its states, through the cell's equations to its sums."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.elementary import tanh
from torchyard_triton.device.matmul import matmul

__all__ = ["recurrent_step_gradient"]


@triton.jit(do_not_specialize=["step", "later", "earlier"])
def recurrent_step_gradient(
    grad_sums,
    grad_inner,
    grad_hidden,
    direct,
    grad_cell,
    weight,
    lengths,
    grad_output,
    reserve,
    hidden,
    cell,
    step,
    later,
    earlier,
    batch,
    size,
    output_step,
    output_row,
    output_column,
    width,
    steps,
    KIND: tl.constexpr,
    RAGGED: tl.constexpr,
    OUTPUT: tl.constexpr,
    FACTOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Compute the gradients of one step's sums, from those of the step that followed it.

        grad h[t] = grad_output[t] + grad_sums[later] W + direct

    Grid: tiles of sequences, tiles of hidden units. Starts with the last step, whose ``later`` is
    below 0, and ends with a launch whose ``step`` is below 0, which leaves the gradient of the
    state at the start in ``direct``.

    Args:
        grad_sums: float32 [T, B, gates * H]: of what the recurrent product is added to.
        grad_inner: float32 [T, B, H], of a GRU: of what the inputs' product adds to its third gate.
        grad_hidden: float32 [B, H]: of the state at the end, read where ``later`` is below 0.
        direct: float32 [B, H]: what passes a step without the product; read, then written.
        grad_cell: float32 [B, H], of an LSTM: read and written.
        weight: (pointer, row stride, column stride) of w_hh.
        lengths: int32 [B], read where RAGGED.
        grad_output: any dtype, read where OUTPUT, with three strides.
        reserve: float32 [T, B, width]: of the forward.
        hidden, cell: float32 [B, H]: the states at the start.
        step, later, earlier: numbers of this step, of the one whose gradients are known, and of the
            one whose states this one read; below 0, or ``steps`` and above: there is none.
        FACTOR: dtype of the factors of products: bfloat16, or float32 where small gradients would
            vanish.
    """
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    gates: tl.constexpr = 4 if KIND == "lstm" else (3 if KIND == "gru" else 1)
    zero = tl.full((), 0, tl.int64)
    inside = (rows < batch) & (columns < size)
    own = rows.to(tl.int64) * size + columns
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    if later >= 0:
        known = grad_sums + ((zero + later) * batch + rows) * (gates * size)
        for start in range(0, gates * size, DEPTH):
            depth = start + tl.arange(0, DEPTH)
            read = (rows < batch) & (depth < gates * size)[None, :]
            grads = tl.load(known + depth[None, :], mask=read, other=0.0).to(FACTOR)
            places = depth.to(tl.int64)[:, None] * weight[1] + columns.to(tl.int64) * weight[2]
            within = (depth < gates * size)[:, None] & (columns < size)
            w = tl.load(weight[0] + places, mask=within, other=0.0).to(FACTOR)
            total = matmul(grads, w, total)
        total += tl.load(direct + own, mask=inside, other=0.0)
    else:
        total += tl.load(grad_hidden + own, mask=inside, other=0.0)
    if step < 0:
        tl.store(direct + own, total, mask=inside)
    else:
        there = inside
        # The first step of a sequence read the state at the start.
        begins = (earlier < 0) | (earlier >= steps)
        if RAGGED:
            length = tl.load(lengths + rows, mask=rows < batch, other=0)
            there = inside & (step < length)
            begins = begins | (earlier >= length)
        if OUTPUT:
            places = (
                (zero + step) * output_step
                + rows.to(tl.int64) * output_row
                + columns.to(tl.int64) * output_column
            )
            total += tl.load(grad_output + places, mask=there, other=0.0).to(tl.float32)
        step_row = (zero + step) * batch + rows
        kept = reserve + step_row * width + columns
        # Not read where a sequence begins.
        previous = reserve + ((zero + earlier) * batch + rows) * width + columns
        follows = there & (begins == 0)
        grads_to = grad_sums + step_row * (gates * size) + columns
        passed = tl.where(there, 0.0, total)
        if KIND == "lstm":
            i = tl.load(kept, mask=there, other=0.0)
            f = tl.load(kept + size, mask=there, other=0.0)
            g = tl.load(kept + 2 * size, mask=there, other=0.0)
            o = tl.load(kept + 3 * size, mask=there, other=0.0)
            squashed = tanh(tl.load(kept + 4 * size, mask=there, other=0.0))
            c = tl.load(cell + own, mask=inside, other=0.0)
            c = tl.where(begins, c, tl.load(previous + 4 * size, mask=follows, other=0.0))
            given = tl.load(grad_cell + own, mask=inside, other=0.0)
            through = given + total * o * (1.0 - squashed * squashed)
            to_i = through * g * i * (1.0 - i)
            to_f = through * c * f * (1.0 - f)
            to_g = through * i * (1.0 - g * g)
            to_o = total * squashed * o * (1.0 - o)
            tl.store(grads_to, tl.where(there, to_i, 0.0), mask=inside)
            tl.store(grads_to + size, tl.where(there, to_f, 0.0), mask=inside)
            tl.store(grads_to + 2 * size, tl.where(there, to_g, 0.0), mask=inside)
            tl.store(grads_to + 3 * size, tl.where(there, to_o, 0.0), mask=inside)
            tl.store(grad_cell + own, tl.where(there, through * f, given), mask=inside)
        elif KIND == "gru":
            r = tl.load(kept, mask=there, other=0.0)
            z = tl.load(kept + size, mask=there, other=0.0)
            n = tl.load(kept + 2 * size, mask=there, other=0.0)
            n_h = tl.load(kept + 3 * size, mask=there, other=0.0)
            h = tl.load(hidden + own, mask=inside, other=0.0)
            h = tl.where(begins, h, tl.load(previous + 4 * size, mask=follows, other=0.0))
            to_n = total * (1.0 - z) * (1.0 - n * n)
            to_r = to_n * n_h * r * (1.0 - r)
            to_z = total * (h - n) * z * (1.0 - z)
            tl.store(grads_to, tl.where(there, to_r, 0.0), mask=inside)
            tl.store(grads_to + size, tl.where(there, to_z, 0.0), mask=inside)
            tl.store(grads_to + 2 * size, tl.where(there, to_n * r, 0.0), mask=inside)
            tl.store(
                grad_inner + step_row * size + columns, tl.where(there, to_n, 0.0), mask=inside
            )
            passed = tl.where(there, total * z, total)
        else:
            h = tl.load(kept, mask=there, other=0.0)
            slope = 1.0 - h * h
            if KIND == "rnn_relu":
                slope = (h > 0.0).to(tl.float32)
            tl.store(grads_to, tl.where(there, total * slope, 0.0), mask=inside)
        tl.store(direct + own, passed, mask=inside)
