"""One step of a layer and direction: the recurrent product, then the cell's equations.

A program owns some sequences and hidden units, with all their gates, so nothing is exchanged within
a step; what the next step reads of others lies in memory when this launch has ended.
"""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.elementary import sigmoid, tanh
from torchyard_triton.device.matmul import matmul

__all__ = ["recurrent_step"]


@triton.jit
def _weights_of(weight, gate, columns, depth, size, inside, dtype: tl.constexpr):
    """Return W[gate * size + columns, depth] as [D, C]."""
    places = (gate * size + columns).to(tl.int64) * weight[1] + depth.to(tl.int64) * weight[2]
    return tl.load(weight[0] + places, mask=inside, other=0.0).to(dtype)


@triton.jit
def _sum_of(sums, gate, columns, size, inside):
    return tl.load(sums + gate * size + columns, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["step"])
def recurrent_step(
    sums,
    before,
    after,
    cell,
    weight,
    bias,
    lengths,
    output,
    reserve,
    step,
    batch,
    size,
    output_step,
    output_row,
    width,
    KIND: tl.constexpr,
    BIAS: tl.constexpr,
    RAGGED: tl.constexpr,
    RESERVE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Compute the states after one step, its output, and what a backward reads of it.

    Grid: tiles of sequences, tiles of hidden units.

    Args:
        sums: float32 [T, B, gates * H] contiguous: the inputs' products with the biases that are
            outside of any gate.
        before, after: [B, H] contiguous: the hidden states, other memory each.
        cell: float32 [B, H] contiguous, of an LSTM: read and written.
        weight: (pointer, row stride, column stride) of w_hh, [gates * H, H].
        bias: b_hh, read by a GRU where BIAS: the part of its third gate is inside of r.
        lengths: int32 [B], read where RAGGED.
        output: this direction's first element; output_step, output_row: its strides.
        reserve: float32 [T, B, width], written where RESERVE: see the contract.
        step: the number of the step. batch, size: B, H.
    """
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    dtype: tl.constexpr = before.dtype.element_ty
    gates: tl.constexpr = 4 if KIND == "lstm" else (3 if KIND == "gru" else 1)
    first = tl.zeros([ROWS, COLUMNS], tl.float32)
    second, third, fourth = first, first, first
    states = rows.to(tl.int64) * size
    for start in range(0, size, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        read = (rows < batch) & (depth < size)[None, :]
        h = tl.load(before + states + depth[None, :], mask=read, other=0.0)
        within = (depth < size)[:, None] & (columns < size)
        k = depth[:, None]
        w = _weights_of(weight, 0, columns, k, size, within, dtype)
        first = matmul(h, w, first)
        if gates > 1:
            w = _weights_of(weight, 1, columns, k, size, within, dtype)
            second = matmul(h, w, second)
            w = _weights_of(weight, 2, columns, k, size, within, dtype)
            third = matmul(h, w, third)
        if gates > 3:
            w = _weights_of(weight, 3, columns, k, size, within, dtype)
            fourth = matmul(h, w, fourth)
    inside = (rows < batch) & (columns < size)
    step_row = (tl.full((), 0, tl.int64) + step) * batch + rows
    given = sums + step_row * (gates * size)
    own = states + columns
    old = tl.load(before + own, mask=inside, other=0.0).to(tl.float32)
    there = inside
    if RAGGED:
        there = inside & (step < tl.load(lengths + rows, mask=rows < batch, other=0))
    kept = reserve + step_row * width + columns
    if KIND == "lstm":
        i = sigmoid(first + _sum_of(given, 0, columns, size, inside))
        f = sigmoid(second + _sum_of(given, 1, columns, size, inside))
        g = tanh(third + _sum_of(given, 2, columns, size, inside))
        o = sigmoid(fourth + _sum_of(given, 3, columns, size, inside))
        c = f * tl.load(cell + own, mask=inside, other=0.0) + i * g
        h = (o * tanh(c)).to(dtype)
        tl.store(cell + own, c, mask=there)
        if RESERVE:
            tl.store(kept, tl.where(there, i, 0.0), mask=inside)
            tl.store(kept + size, tl.where(there, f, 0.0), mask=inside)
            tl.store(kept + 2 * size, tl.where(there, g, 0.0), mask=inside)
            tl.store(kept + 3 * size, tl.where(there, o, 0.0), mask=inside)
            tl.store(kept + 4 * size, tl.where(there, c, 0.0), mask=inside)
            kept += 5 * size
    elif KIND == "gru":
        r = sigmoid(first + _sum_of(given, 0, columns, size, inside))
        z = sigmoid(second + _sum_of(given, 1, columns, size, inside))
        n_h = third
        if BIAS:
            n_h += tl.load(bias + 2 * size + columns, mask=columns < size, other=0.0).to(tl.float32)
        n = tanh(_sum_of(given, 2, columns, size, inside) + r * n_h)
        h = (n + z * (old - n)).to(dtype)
        if RESERVE:
            tl.store(kept, tl.where(there, r, 0.0), mask=inside)
            tl.store(kept + size, tl.where(there, z, 0.0), mask=inside)
            tl.store(kept + 2 * size, tl.where(there, n, 0.0), mask=inside)
            tl.store(kept + 3 * size, tl.where(there, n_h, 0.0), mask=inside)
            kept += 4 * size
    else:
        total = first + _sum_of(given, 0, columns, size, inside)
        if KIND == "rnn_tanh":
            h = tanh(total).to(dtype)
        else:
            # Of NaN it is NaN.
            h = tl.where(total < 0.0, 0.0, total).to(dtype)
    shown = tl.where(there, h, 0.0)
    if RESERVE:
        tl.store(kept, shown.to(tl.float32), mask=inside)
    place = (tl.full((), 0, tl.int64) + step) * output_step + rows.to(tl.int64) * output_row
    tl.store(output + place + columns, shown.to(dtype), mask=inside)
    tl.store(after + own, tl.where(there, h, old.to(dtype)).to(dtype), mask=inside)
