"""The state of a context: the ranks, the sequence, and the masks over it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from torchyard import arguments
from torchyard_attention import BlockMask, and_masks, create_block_mask, masks
from torchyard_context_parallel._agreement import agree
from torchyard_context_parallel._api import ATTENTION, context_parallel_attention
from torchyard_context_parallel._place import Place
from torchyard_context_parallel._sharding import Sharding
from torchyard_context_parallel._torch_compat import version_of


class Spread:
    """A model's attention over ranks.

    Args:
        mesh, sharding, schedule: as context_parallel_attention takes them.
        positions: position ids of the whole sequence, integers [length], [1, length] or
            [B, length]; None: 0 to length - 1.

    Attributes:
        text: of the positions, equal where they are.
        calls: how many attention calls have begun to agree and exchange.
        asked: whether any attention call was made, a refused one included.
    """

    def __init__(
        self,
        mesh: DeviceMesh | dist.ProcessGroup,
        sharding: Sharding,
        schedule: str,
        positions: Tensor | None,
    ) -> None:
        self.mesh = mesh
        self.place = Place.of(mesh)
        self.sharding = sharding
        self.schedule = schedule
        self.asked = False
        try:
            arguments.instance("context_parallel", "sharding", sharding, Sharding)
            self.positions = _checked_positions(positions, sharding)
        except (TypeError, ValueError) as error:
            # The others learn of it at their first attention call.
            self.refuse(error)
        self.documents = None if self.positions is None else _documents(self.positions)
        self.text = "none"
        if self.positions is not None:
            content = repr(self.positions.tolist()).encode()
            self.text = f"digest {hashlib.blake2b(content, digest_size=8).hexdigest()}"
        self.calls = 0
        self._masks: dict[Any, BlockMask | None] = {}
        self._seen: Any = None

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: BlockMask | None,
        score_mod: Callable[..., Any] | None = None,
        scale: float | None = None,
        return_lse: bool = False,
    ) -> Any:
        """Return context_parallel_attention of this rank's tensors, over a mask of the whole."""
        self.calls += 1
        self.asked = True
        return context_parallel_attention(
            query,
            key,
            value,
            mesh=self.mesh,
            score_mod=score_mod,
            block_mask=mask,
            schedule=self.schedule,
            scale=scale,
            sharding=self.sharding,
            return_lse=return_lse,
        )

    def refuse(self, error: Exception, device: torch.device | None = None) -> NoReturn:
        """Raise an error of this rank's attention call on every rank."""
        self.asked = True
        agree(self.place, ATTENTION, {}, refusal=error, device=device)
        raise AssertionError("agree raises what a rank refuses")

    def agree_to_end(self) -> None:
        """Check that every rank has come to the end, and that attention was spread on each."""
        refusal = None
        if not self.asked:
            refusal = RuntimeError(
                "context_parallel: the model called no attention that can be spread: neither "
                "scaled_dot_product_attention nor transformers' attention interface; load it with "
                'attn_implementation="sdpa" or "torchyard", or call context_parallel_attention in '
                "it"
            )
        agree(self.place, "the end of context_parallel", {}, refusal=refusal)

    def mask(
        self,
        device: torch.device,
        *,
        low: int | None,
        high: int | None,
        chunk: int | None = None,
        padding: Tensor | None = None,
        together: bool = False,
    ) -> BlockMask | None:
        """Return a mask over the whole sequence; kept unless it holds padding.

        Args:
            device: of the result.
            low, high: a query at q sees keys from q + low to below q + high; None: no limit.
            chunk: a query sees keys of its own chunk of this many positions.
            padding: bool [B, length], False at padding.
            together: whether to leave the sequences in one row together.
        """
        name = (device, low, high, chunk, together)
        if padding is None and name in self._masks:
            return self._masks[name]
        documents = None if together else self.documents
        parts = []
        if (low, high) != (None, None):
            parts.append(_band(low, high))
        if documents is not None:
            parts.append(masks.document(documents.to(device)))
        if chunk is not None:
            parts.append(masks.document(self._chunks(chunk, documents, padding).to(device)))
        if padding is not None:
            ids = torch.where(padding, 0, -1).to(device)
            parts.append(masks.document(torch.zeros_like(ids), ids))
        made = None
        if parts:
            rows = [part for part in (documents, padding) if part is not None and part.ndim > 1]
            batch = rows[0].shape[0] if rows else None
            mod = parts[0] if len(parts) == 1 else and_masks(*parts)
            length = self.sharding.length
            with torch.inference_mode(False), torch.no_grad():
                made = create_block_mask(mod, batch, None, length, length, device)
        if padding is None:
            self._masks[name] = made
        return made

    def _chunks(self, size: int, documents: Tensor | None, padding: Tensor | None) -> Tensor:
        """Return the chunk of each position; the first begins where padding ends."""
        if documents is not None:
            assert self.positions is not None
            return self.positions // size
        places = torch.arange(self.sharding.length)
        if padding is not None:
            first = (padding.cpu().cumsum(-1) == 0).sum(-1, keepdim=True)
            places = places - first
        return torch.div(places, size, rounding_mode="floor")

    def check_positions(self, given: Tensor) -> None:
        """Check the position ids that a model gives to its layers.

        Raises:
            ValueError: they are not those of this rank's part.
        """
        if given.ndim != 2 or self._seen == (id(given), version_of(given)):
            return
        part = self.place.part
        if self.positions is None:
            expected = self.sharding.positions(part)[None]
        else:
            rows = self.positions if self.positions.ndim == 2 else self.positions[None]
            expected = self.sharding.take(rows, part, 1)
        fits = given.shape[1] == expected.shape[1] and (
            min(given.shape[0], expected.shape[0]) == 1 or given.shape[0] == expected.shape[0]
        )
        if not fits or not bool((given.cpu() == expected).all()):
            raise ValueError(
                f"position_ids: expected those of part {part} of the sharding, {_told(expected)}, "
                f"got {_told(given)}; pass position_ids=position_ids(sharding, mesh=mesh) to the "
                "model; where one row holds several sequences, give the whole sequence's to "
                "context_parallel(..., position_ids=whole) and shard(whole, ...) to the model"
            )
        if not given.is_inference():
            self._seen = (id(given), version_of(given))


def _told(positions: Tensor) -> str:
    row = positions[0].tolist()
    return f"{row[:3]}..{row[-3:]}" if len(row) > 6 else str(row)


def _band(low: int | None, high: int | None) -> Any:
    if (low, high) == (None, 1):
        return masks.causal
    if low is None or high is None or low > 0 or high < 1:
        raise ValueError(f"mask: expected a causal one or a window, got keys from {low} to {high}")
    return masks.sliding_window(1 - low, ahead=high - 1)


def _checked_positions(positions: Any, sharding: Sharding) -> Tensor | None:
    if positions is None:
        return None
    if (
        not isinstance(positions, Tensor)
        or positions.dtype not in (torch.int32, torch.int64)
        or positions.ndim not in (1, 2)
        or positions.shape[-1] != sharding.length
    ):
        got = (
            f"{positions.dtype} {list(positions.shape)}"
            if isinstance(positions, Tensor)
            else type(positions).__name__
        )
        raise ValueError(
            f"position_ids: expected integers [{sharding.length}], [1, {sharding.length}] or "
            f"[B, {sharding.length}], of the whole sequence, got {got}"
        )
    known: Tensor = positions.detach().cpu().long()
    return known[0] if known.ndim == 2 and known.shape[0] == 1 else known


def _documents(positions: Tensor) -> Tensor | None:
    """Return which sequence of its row each position belongs to; None where each row is one.

    A sequence begins wherever a position does not follow the one before, as in transformers.
    """
    begins = torch.diff(positions, dim=-1) != 1
    if not bool(begins.any()):
        return None
    ids = torch.zeros_like(positions)
    ids[..., 1:] = begins.cumsum(-1)
    return ids
