"""``backward``: gradients of attention by kernels that use no atomics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients, listed_by_columns
from torchyard_triton.attention._captured import captured_gradient, spread_of
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
from torchyard_triton.lowering import LoweredProgram, LoweredSite

__all__ = ["PASSES", "BackwardPasses", "backward"]

# Kernels with tiles of their own.
PASSES: Final = (
    *("attention_delta", "attention_query_gradient", "attention_key_gradient"),
    "attention_captured_gradient",
)


def backward(
    call: AttentionCall,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None = None,
    *,
    mask_mod: MaskProgram | None = None,
    tiles: Tiles | Mapping[str, Tiles] | None = None,
) -> AttentionGradients:
    """Compute ``attention_backward/1``. The same inputs give the same bits in every run.

    Args:
        call, out, lse, grad_out, grad_lse: as the contract has them.
        mask_mod: as of :func:`torchyard_triton.attention.forward`.
        tiles: of all passes, or of each by its kernel's name, as in ``tuning.json``.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
        ValueError: the call is larger than kernels can index.
    """
    return BackwardPasses(call, out, lse, grad_out, grad_lse, mask_mod, tiles or Tiles()).run()


class BackwardPasses:
    """One backward: what its passes have in common. Arguments as of :func:`backward`."""

    def __init__(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
        mask_mod: MaskProgram | None,
        tiles: Tiles | Mapping[str, Tiles],
    ) -> None:
        checked_sizes(call)
        self.call, self.out, self.grad_out, self.grad_lse = call, out, grad_out, grad_lse
        self.batches, self.heads, self.q_length, self.head_dim = call.query.shape
        self.kv_heads, self.kv_length, self.value_dim = call.value.shape[1:]
        self.block = (0, 0) if call.mask is None else call.mask.block_size
        self._limits = (
            min(self.block[0] or self.q_length, self.q_length),
            min(self.block[1] or self.kv_length, self.kv_length),
        )
        self._given = tiles
        # Without a mask every row sees every key, and nothing is to be kept out.
        self.masked = call.mask is not None or mask_mod is not None
        self.lse = lse.contiguous()
        self.delta = torch.empty_like(self.lse)
        self.program = self._program()
        mask = None if mask_mod is None else lowered_mask(mask_mod)
        device = call.query.device
        self.score, self.captured = program_arguments(call.score_mod, self.program, device)
        self.mask, self.mask_captured = program_arguments(mask_mod, mask, device)

    def _program(self) -> LoweredProgram | None:
        if self.call.score_mod is None:
            return None
        wanted = tuple(number for number, flag in enumerate(self.call.captured_grad) if flag)
        return lowered_score(self.call.score_mod, derivatives=True, wanted=wanted)

    def run(self) -> AttentionGradients:
        inputs = (self.call.query, self.call.key, self.call.value)
        # Zeros, since without rows or keys no kernel runs.
        query, key, value = (
            torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device) for tensor in inputs
        )
        empty = 0 in (self.batches, self.heads, self.q_length, self.kv_length)
        if not empty:
            self.delta_launch().run()
            marks = self._marks(self.heads, self.q_length)
            self.query_launch(query, marks).run()
            key_marks = self._marks(self.kv_heads, self.kv_length)
            self.key_launch(key, value, key_marks).run()
            if self.masked:
                self.query_launch(query, marks, exact=True).run()
                self.key_launch(key, value, key_marks, exact=True).run()
        return AttentionGradients(query, key, value, self.captured_gradients(empty))

    def _tensors(self) -> tuple[Any, ...]:
        tensors = (self.call.query, self.call.key, self.call.value, self.grad_out)
        return tuple(tensor_arguments(tensor) for tensor in tensors)

    def _marks(self, heads: int, length: int) -> Tensor:
        """Return what one pass marks rows in for the next; never read where nothing is masked."""
        size = (self.batches, heads, length) if self.masked else (1,)
        return torch.empty(size, dtype=torch.int8, device=self.lse.device)

    def _tiles(self, kernel: str) -> Tiles:
        given = self._given
        own = given if isinstance(given, Tiles) else given.get(kernel, Tiles())
        return own.within(self._limits)

    def _constants(self, tiles: Tiles) -> dict[str, Any]:
        return {
            "SCORE": self.score,
            "MASK": self.mask,
            "LISTS": self.call.mask is not None,
            "BLOCK": self.block[0],
            "KEY_BLOCK": self.block[1],
            "SIZE": self.head_dim,
            "PADDED": padded(self.head_dim),
            "VALUE_SIZE": self.value_dim,
            "VALUE_PADDED": padded(self.value_dim),
            **tiles.constants,
        }

    def _slope(self) -> Any:
        return None if self.program is None else self.program.function(self.program.slope)

    def delta_launch(self) -> Launch:
        from torchyard_triton.device.attention.delta import attention_delta

        rows = self._tiles("attention_delta").rows
        arguments = (
            tensor_arguments(self.out),
            tensor_arguments(self.grad_out),
            self.lse if self.grad_lse is None else self.grad_lse.float().contiguous(),
            self.delta,
            self.heads,
            self.q_length,
            -(-self.q_length // rows),
        )
        constants = {
            "LSE": self.grad_lse is not None,
            "SIZE": self.value_dim,
            "PADDED": padded(self.value_dim),
            "ROWS": rows,
        }
        grid = (arguments[-1] * self.batches * self.heads,)
        return Launch(attention_delta, grid, arguments, constants)

    def query_launch(self, gradient: Tensor, marks: Tensor, *, exact: bool = False) -> Launch:
        """Return the launch that writes the query's gradient; exact: that of marked rows."""
        from torchyard_triton.device.attention.query_gradient import attention_query_gradient

        tiles = self._pass_tiles("attention_query_gradient", exact)
        count = row_tiles(self.q_length, self.block[0], tiles.rows)
        arguments = (
            *self._tensors(),
            tensor_arguments(gradient),
            *(self.lse, self.delta, marks, mask_arguments(self.call.mask, self.lse)),
            *(self.captured, self.mask_captured, self.call.scale),
            *(self.heads, self.heads // self.kv_heads, self.q_length, self.kv_length, count),
        )
        grid = (count * self.batches * self.heads,)
        constants = self._gradient_constants(tiles, exact)
        return Launch(attention_query_gradient, grid, arguments, constants)

    def _pass_tiles(self, kernel: str, exact: bool) -> Tiles:
        return EXACT_TILES.within(self._limits) if exact else self._tiles(kernel)

    def _gradient_constants(self, tiles: Tiles, exact: bool) -> dict[str, Any]:
        own = {"SLOPE": self._slope(), "MARKS": self.masked and not exact, "EXACT": exact}
        return {**own, **self._constants(tiles)}

    def key_launch(
        self, key: Tensor, value: Tensor, marks: Tensor, *, exact: bool = False
    ) -> Launch:
        """Return the launch that writes gradients of key and value; exact: of marked keys."""
        from torchyard_triton.device.attention.key_gradient import attention_key_gradient

        tiles = self._pass_tiles("attention_key_gradient", exact)
        count = row_tiles(self.kv_length, self.block[1], tiles.keys)
        arguments = (
            *self._tensors(),
            *(tensor_arguments(key), tensor_arguments(value)),
            *(self.lse, self.delta, marks, mask_arguments(self.call.mask, self.lse)),
            self.transposed,
            *(self.captured, self.mask_captured, self.call.scale),
            *(self.kv_heads, self.heads // self.kv_heads, self.q_length, self.kv_length, count),
        )
        grid = (count * self.batches * self.kv_heads,)
        # Exact tiles are of another size, and of the same matrix units.
        turned = self._tiles("attention_key_gradient").turned
        constants = {**self._gradient_constants(tiles, exact), "TURNED": turned}
        return Launch(attention_key_gradient, grid, arguments, constants)

    @cached_property
    def transposed(self) -> tuple[Any, ...]:
        """The mask's lists by columns of blocks."""
        mask = self.call.mask
        if mask is None:
            return (*(self.lse,) * 5, 1, 1, 1, 1)
        lists = listed_by_columns(mask, self.kv_length)
        rows = mask.kv_num_blocks.shape[2]
        return (*lists, *lists[0].shape, max(1, rows))

    def site_launch(
        self, site: LoweredSite, parts: Tensor, places: Tensor, first_tile: int, first_head: int
    ) -> Launch:
        from torchyard_triton.device.attention.captured_gradient import attention_captured_gradient

        assert self.program is not None
        arguments = (
            *self._tensors(),
            *(parts, places, self.lse, self.delta, mask_arguments(self.call.mask, self.lse)),
            *(self.captured, self.mask_captured, self.call.scale),
            *(self.heads, self.heads // self.kv_heads, self.q_length, self.kv_length),
            *(first_tile, first_head, parts.shape[1]),
        )
        constants = {
            "SITE": self.program.function(site.function),
            "SPREAD": spread_of(site),
            **self._constants(self._tiles("attention_captured_gradient")),
        }
        grid = (parts.shape[0] * parts.shape[1],)
        return Launch(attention_captured_gradient, grid, arguments, constants)

    def captured_gradients(self, empty: bool = False) -> tuple[Tensor | None, ...]:
        """Return the gradients of captured tensors, each where the call asks for it."""
        if self.call.score_mod is None or self.program is None:
            return ()
        tensors = self.call.score_mod.captured
        totals: dict[int, Tensor] = {}
        for site in () if empty else self.program.sites:
            found = self._site(site, tensors[site.tensor])
            totals[site.tensor] = totals[site.tensor] + found if site.tensor in totals else found
        gradients: list[Tensor | None] = []
        for number, wanted in enumerate(self.call.captured_grad):
            tensor = tensors[number]
            total = totals.get(number)
            if not wanted:
                gradients.append(None)
            elif total is None:
                gradients.append(
                    torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
                )
            else:
                gradients.append(total.view(tensor.shape).to(tensor.device, tensor.dtype))
        return tuple(gradients)

    def _site(self, site: LoweredSite, tensor: Tensor) -> Tensor:
        def launch(parts: Tensor, places: Tensor, first_tile: int, first_head: int) -> None:
            self.site_launch(site, parts, places, first_tile, first_head).run()

        rows = self._tiles("attention_captured_gradient").rows
        tiles = row_tiles(self.q_length, self.block[0], rows)
        sizes = (self.batches * self.heads, tiles, rows, self.kv_length)
        at = tensor if tensor.device == self.lse.device else tensor.to(self.lse.device)
        return captured_gradient(launch, site, at, sizes)
