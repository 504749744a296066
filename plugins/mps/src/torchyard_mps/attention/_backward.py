"""``backward``: gradients of attention by kernels that use no atomics."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients, ScoreMod
from torchyard_mps._launch import PREAMBLE, Launch, groups_for, metal_text
from torchyard_mps._runner import run
from torchyard_mps.attention._captured import PlaceSums, spread_of, write_parts
from torchyard_mps.attention._programs import (
    CAPTURED,
    checked_count,
    declared,
    layouts,
    lowered_mask,
    lowered_score,
    on_device,
    visible_text,
)
from torchyard_mps.attention._tensors import (
    THREADS,
    constants,
    listed_by_columns,
    listed_by_rows,
    row_tiles,
    type_definition,
)
from torchyard_mps.lowering import LoweredSite, header

__all__ = ["backward"]

_LANES: Final = 32
# Where the layouts of captured tensors begin in what kernels call ``sizes``.
_LAYOUTS: Final = 29


def backward(
    call: AttentionCall,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None = None,
    *,
    mask_mod: ScoreMod | None = None,
) -> AttentionGradients:
    """Compute ``attention_backward/1``. The same inputs give the same bits in every run.

    Args:
        call, out, lse, grad_out, grad_lse: as the contract has them.
        mask_mod: as of :func:`torchyard_mps.attention.forward`.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
        ValueError: programs capture more tensors than Metal has buffers for.
    """
    return _BackwardPasses(call, out, lse, grad_out, grad_lse, mask_mod).run()


class _BackwardPasses:
    """One backward: what its passes have in common. Arguments as of :func:`backward`."""

    def __init__(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
        mask_mod: ScoreMod | None,
    ) -> None:
        self._call, self._out, self._grad_out, self._grad_lse = call, out, grad_out, grad_lse
        self._lse = lse.contiguous()
        self._delta = torch.empty_like(self._lse)
        self._device = call.query.device
        self._batches, self._heads, self._q_length, _ = call.query.shape
        self._kv_heads, self._kv_length = call.key.shape[1:3]
        self._blocks = (0, 0) if call.mask is None else call.mask.block_size
        wanted = tuple(number for number, flag in enumerate(call.captured_grad) if flag)
        self._score, self._mask_mod = lowered_score(call.score_mod, wanted=wanted), mask_mod
        self._mask = lowered_mask(mask_mod)
        names, tensors = declared(self._score, call.score_mod, 0)
        mask_names, mask_tensors = declared(self._mask, mask_mod, len(names))
        self._names, self._mask_names = names, mask_names
        self._captured = on_device([*tensors, *mask_tensors], self._device)
        checked_count("backward", self._captured)

    def run(self) -> AttentionGradients:
        call = self._call
        # Zeros, since without rows or keys no kernel runs.
        query, key, value = (
            torch.zeros(tensor.shape, dtype=tensor.dtype, device=self._device)
            for tensor in (call.query, call.key, call.value)
        )
        empty = 0 in (self._batches, self._heads, self._q_length, self._kv_length)
        if not empty:
            run(self._delta_launch())
            run(self._query_launch(query))
            run(self._key_launch(key, value))
        return AttentionGradients(query, key, value, self._captured_gradients(empty))

    def _delta_launch(self) -> Launch:
        rows = self._delta.numel()
        strides = (*self._out.stride(), *self._grad_out.stride())
        has_lse = self._grad_lse is not None
        sizes = (*strides, self._heads, self._q_length, rows, self._out.shape[3], int(has_lse))
        grad_lse = self._lse if self._grad_lse is None else self._grad_lse.float().contiguous()
        buffers = (self._out, self._grad_out, grad_lse, self._delta, self._numbers(sizes))
        source = "\n".join([PREAMBLE, self._typedef, metal_text("attention/delta")])
        groups = (groups_for(rows * _LANES), 1)
        return Launch(source, "attention_delta", groups, THREADS, buffers, (3,))

    def _query_launch(self, gradient: Tensor) -> Launch:
        groups = (row_tiles(self._q_length, self._blocks[0]), self._batches * self._heads)
        buffers = (*self._buffers(*self._rows), gradient)
        return self._launch("attention_query_gradient", groups, buffers, outputs=(14,))

    def _key_launch(self, key: Tensor, value: Tensor) -> Launch:
        groups = (row_tiles(self._kv_length, self._blocks[1]), self._batches * self._kv_heads)
        columns = listed_by_columns(self._call.mask, self._kv_length, self._device)
        buffers = (*self._buffers(*columns), key, value)
        return self._launch("attention_key_gradient", groups, buffers, outputs=(14, 15))

    def _site_launch(
        self, number: int, parts: Tensor, places: Tensor, first_tile: int, first_head: int
    ) -> Launch:
        numbers = (number, spread_of(self._sites[number]), first_tile, first_head)
        buffers = (*self._buffers(*self._rows, numbers), parts, places)
        groups = (parts.shape[1], parts.shape[0])
        return self._launch("attention_captured_gradient", groups, buffers, updated=(14, 15))

    def _launch(
        self,
        kernel: str,
        groups: tuple[int, int],
        buffers: tuple[Tensor, ...],
        *,
        outputs: tuple[int, ...] = (),
        updated: tuple[int, ...] = (),
    ) -> Launch:
        buffers = (*buffers, *self._captured)
        return Launch(self._source, kernel, groups, THREADS, buffers, outputs, updated)

    def _buffers(
        self, lists: tuple[Tensor, ...], list_sizes: list[int], numbers: tuple[int, ...] = (0,) * 4
    ) -> tuple[Tensor, ...]:
        call = self._call
        tensors = (call.query, call.key, call.value, self._grad_out)
        strides = [stride for tensor in tensors for stride in tensor.stride()]
        counts = (self._heads, self._heads // self._kv_heads, self._q_length, self._kv_length)
        score, mask = self._layouts
        sizes = self._numbers((*strides, *counts, *list_sizes, *numbers, *score, *mask))
        scale = torch.tensor(call.scale, dtype=torch.float32, device=self._device)
        return (*tensors, self._lse, self._delta, *lists, sizes, scale)

    def _numbers(self, values: tuple[int, ...]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)

    @property
    def _sites(self) -> tuple[LoweredSite, ...]:
        return () if self._score is None else self._score.sites

    @cached_property
    def _rows(self) -> tuple[tuple[Tensor, ...], list[int]]:
        return listed_by_rows(self._call.mask, self._device)

    @cached_property
    def _layouts(self) -> tuple[list[int], list[int]]:
        """Sizes and strides of what the programs of scores and of the mask capture."""
        score, mask = layouts((self._score, self._call.score_mod), (self._mask, self._mask_mod))
        return score, mask

    @property
    def _typedef(self) -> str:
        return type_definition("T", self._call.query.dtype)

    @cached_property
    def _source(self) -> str:
        """The text of all passes but the first, which no program changes."""
        call = self._call
        lowered = [program.source for program in (self._score, self._mask) if program is not None]
        defined = {**constants(call.query, call.value, call.mask), **self._expressions()}
        passes = ["gradients", "query_gradient", "key_gradient"]
        passes += ["captured_gradient"] if self._sites else []
        names = [*self._names, *self._mask_names]
        text = metal_text("attention/tiles", *(f"attention/{name}" for name in passes))
        # Where captured tensors begin is how many other buffers a kernel has.
        for first in (CAPTURED - 1, CAPTURED):
            declarations = "".join(
                f"device const {kind}* {name} [[buffer({place})]], "
                for place, (kind, name) in enumerate(names, first)
            )
            text = text.replace(f"CAPTURED_{first} ", declarations)
        fields = [f"  device const {kind}* {name};" for kind, name in names]
        fields += [f"  constant long* {name}_layout;" for name in ("score", "mask")]
        structure = "\n".join(["struct Programs {", *fields, "};"])
        lines = [f"#define {name} {value}" for name, value in defined.items()]
        return "\n".join([header(), *lowered, self._typedef, structure, *lines, text])

    def _expressions(self) -> dict[str, str]:
        """Return what kernels compute of a pair, as calls of programs."""
        layouts = _LAYOUTS, _LAYOUTS + len(self._layouts[0])
        found = {
            "PROGRAMS": ", ".join(
                [name for _, name in (*self._names, *self._mask_names)]
                + [f"sizes + {place}" for place in layouts]
            ),
            "SCORE": "s",
            "SLOPE": "1.0f",
            "VISIBLE": visible_text(self._call.mask),
        }
        if self._score is not None:
            arguments = _arguments(self._names, "score")
            found["SCORE"] = f"{self._score.name}({arguments})"
            found["SLOPE"] = f"{self._score.slope}({arguments})"
            for name in ("weight", "place"):
                calls = [f"{getattr(site, name)}({arguments})" for site in self._sites]
                found[f"SITE_{name.upper()}"] = _chosen(calls)
        if self._mask is not None:
            found["VISIBLE"] = f"{self._mask.name}({_arguments(self._mask_names, 'mask')})"
        return found

    def _captured_gradients(self, empty: bool) -> tuple[Tensor | None, ...]:
        """Return the gradients of captured tensors, each where the call asks for it."""
        mod, wanted = self._call.score_mod, self._call.captured_grad
        if mod is None:
            return ()
        sums = {
            number: PlaceSums(mod.captured[number].numel(), self._device)
            for number, flag in enumerate(wanted)
            if flag
        }
        tiles = row_tiles(self._q_length, self._blocks[0])
        sizes = (self._batches * self._heads, tiles, self._kv_length)
        for number, site in enumerate(() if empty else self._sites):
            launch = partial(self._site_launch, number)
            write_parts(launch, site, sums[site.tensor], sizes, self._device)
        return tuple(
            sums[number].total.view(tensor.shape).to(tensor.device, tensor.dtype)
            if number in sums
            else None
            for number, tensor in enumerate(mod.captured[: len(wanted)])
        )


def _arguments(names: list[tuple[str, str]], program: str) -> str:
    captured = [f"programs.{name}" for _, name in names]
    return ", ".join(["s", "b", "h", "q", "k", *captured, f"programs.{program}_layout"])


def _chosen(calls: list[str]) -> str:
    """Return the expression that is one of some calls, by the number of the site."""
    if not calls:
        return ""
    *others, last = calls
    text = last
    for number, call in reversed(list(enumerate(others))):
        text = f"(site == {number} ? {call} : {text})"
    return text
