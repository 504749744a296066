"""``forward``: outputs of attention by one kernel, and a second one where rows hold NaN."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_triton.attention._launch import (
    EXACT_TILES,
    Launch,
    MaskProgram,
    Tiles,
    checked_sizes,
    lowered_mask,
    lowered_score,
    mask_arguments,
    padded,
    program_arguments,
    row_tiles,
    tensor_arguments,
)

__all__ = ["ForwardPasses", "forward"]


def forward(
    call: AttentionCall,
    *,
    mask_mod: MaskProgram | None = None,
    sinks: Tensor | None = None,
    tiles: Tiles | None = None,
) -> AttentionResult:
    """Compute ``attention/1``.

    Blocks that the call's mask lists nowhere are not read. An element that a captured tensor does
    not have is NaN, and 0 of a tensor of integers.

    Args:
        call: the call, of float32, float16 or bfloat16, without dropout and pages.
        mask_mod: the program of the call's mask, such as its source, over (s, b, h, q, k) as a
            score_mod's: kernels compute it instead of reading the bits of partial blocks. Without
            a mask in the call it is computed for every pair.
        sinks: float32 [Hq]: each adds exp(sinks[h]) to the softmax's sum of its head's rows.
        tiles: None: the default of the device's architecture.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
        ValueError: the call is larger than kernels can index.
    """
    return ForwardPasses(call, mask_mod, sinks, tiles or Tiles()).run()


class ForwardPasses:
    """One forward: what its launches have in common. Arguments as of :func:`forward`."""

    def __init__(
        self, call: AttentionCall, mask_mod: MaskProgram | None, sinks: Tensor | None, tiles: Tiles
    ) -> None:
        checked_sizes(call)
        self.call, self.sinks, self.tiles = call, sinks, tiles
        query, value = call.query, call.value
        self.batches, self.heads, self.q_length, self.head_dim = query.shape
        self.kv_heads, self.kv_length, self.value_dim = value.shape[1:]
        self.block = (0, 0) if call.mask is None else call.mask.block_size
        rows = (self.batches, self.heads, self.q_length)
        self.out = query.new_empty((*rows, self.value_dim))
        self.lse = query.new_empty(rows, dtype=torch.float32)
        self.max_scores = torch.empty_like(self.lse) if call.max_scores else None
        # Without a mask every row sees every key, and nothing is to be kept out.
        masked = call.mask is not None or mask_mod is not None
        self.marks = torch.empty_like(self.lse, dtype=torch.int8) if masked else None
        score = None if call.score_mod is None else lowered_score(call.score_mod)
        mask = None if mask_mod is None else lowered_mask(mask_mod)
        self.score, self.captured = program_arguments(call.score_mod, score, query.device)
        self.mask, self.mask_captured = program_arguments(mask_mod, mask, query.device)

    def run(self) -> AttentionResult:
        self.launch().run()
        if self.marks is not None:
            self.exact_launch().run()
        return AttentionResult(self.out, self.lse if self.call.lse else None, self.max_scores)

    def launch(self) -> Launch:
        from torchyard_triton.device.attention.forward import attention_forward

        return self._launch(
            attention_forward,
            self.tiles,
            (
                self.lse if self.max_scores is None else self.max_scores,
                self.lse if self.marks is None else self.marks,
                mask_arguments(self.call.mask, self.lse),
                self.lse if self.sinks is None else self.sinks,
            ),
            {
                "SINKS": self.sinks is not None,
                "MAXIMA": self.max_scores is not None,
                "MARKS": self.marks is not None,
            },
        )

    def exact_launch(self) -> Launch:
        """Return the launch that computes again the rows that the first one marked."""
        from torchyard_triton.device.attention.exact_forward import attention_exact_forward

        own = (self.marks, mask_arguments(self.call.mask, self.lse))
        return self._launch(attention_exact_forward, EXACT_TILES, own, {})

    def _launch(
        self, kernel: Any, tiles: Tiles, own: tuple[Any, ...], constants: dict[str, Any]
    ) -> Launch:
        """Return a launch of a kernel with arguments of its own between the shared ones."""
        call = self.call
        tiles = tiles.within(
            (
                min(self.block[0] or self.q_length, self.q_length),
                min(self.block[1] or self.kv_length, self.kv_length),
            )
        )
        count = row_tiles(self.q_length, self.block[0], tiles.rows)
        tensors = (call.query, call.key, call.value, self.out)
        arguments = (
            *(tensor_arguments(tensor) for tensor in tensors),
            self.lse,
            *own,
            *(self.captured, self.mask_captured, call.scale),
            *(self.heads, self.heads // max(1, self.kv_heads)),
            *(self.q_length, self.kv_length, count),
        )
        shared = {
            "SCORE": self.score,
            "MASK": self.mask,
            "LISTS": call.mask is not None,
            "BLOCK": self.block[0],
            "KEY_BLOCK": self.block[1],
            "SIZE": self.head_dim,
            "PADDED": padded(self.head_dim),
            "VALUE_SIZE": self.value_dim,
            "VALUE_PADDED": padded(self.value_dim),
            **tiles.constants,
        }
        grid = (count * self.batches * self.heads,)
        return Launch(kernel, grid, arguments, {**shared, **constants})
