"""A mask as a model of transformers passes it from layer to layer."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import torch
from torch.nn.attention import flex_attention as stock

from torchyard_attention._api import flex_attention
from torchyard_attention._block_mask import BlockMask
from torchyard_attention.transformers._errors import NoTensorError, UnsupportedArgumentError

__all__ = ["PreparedMask"]

_REMEDY: Final = (
    'torchyard\'s mask is no tensor; load the model with attn_implementation="sdpa" or "eager"'
)


class PreparedMask(stock.BlockMask):
    """Which keys a call reads, and which of them each query sees.

    A subclass of torch's BlockMask, because that is how transformers knows a mask that is finished
    (``generate`` makes those of static caches ahead of the model). It has nothing else of it.

    Attributes:
        sizes: (B, Sq, Sk) of the call that it was made for.
        start, stop: the keys outside of which no query sees anything.
        blocks: which of the keys between a query sees, as [B or 1, 1, Sq, stop - start]; None: all.
        packed: whether it keeps sequences in one row apart.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int],
        start: int,
        stop: int,
        blocks: BlockMask | None,
        packed: bool,
    ) -> None:
        self.sizes = sizes
        self.start = start
        self.stop = stop
        self.blocks = blocks
        self.packed = packed

    def attend(self, *args: Any, **kwargs: Any) -> Any:
        """Compute ``flex_attention`` with its arguments; a mask of several processes differs."""
        return flex_attention(*args, **kwargs)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, 1, Sq, Sk), as transformers expects of a mask that is finished."""
        batch, q_length, kv_length = self.sizes
        return (batch, 1, q_length, kv_length)

    @property
    def ndim(self) -> int:
        """4, as of any mask that is finished."""
        return 4

    def contiguous(self) -> PreparedMask:
        """Return the mask: ``generate`` asks for this of every mask that it makes."""
        return self

    def to(self, device: torch.device | str, *args: Any, **kwargs: Any) -> PreparedMask:
        """Return the mask on another device."""
        blocks = None if self.blocks is None else self.blocks.to(device)
        return PreparedMask(self.sizes, self.start, self.stop, blocks, self.packed)

    def __getitem__(self, index: object) -> NoReturn:
        raise UnsupportedArgumentError(f"attention_mask: the model takes a part of it; {_REMEDY}")

    def _refuse(self, *others: object) -> NoReturn:
        raise UnsupportedArgumentError(f"attention_mask: the model computes with it; {_REMEDY}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __invert__ = _refuse

    @classmethod
    def __torch_function__(
        cls, func: Any, types: object, args: object = (), kwargs: object = None
    ) -> NoReturn:
        # What a model does with a mask by torch's functions, such as masked_fill.
        called = getattr(func, "__name__", func)
        raise UnsupportedArgumentError(f"attention_mask: the model calls {called} on it; {_REMEDY}")

    def __getattr__(self, name: str) -> NoReturn:
        raise NoTensorError(f"attention_mask: the model asks for its {name}; {_REMEDY}")

    def __repr__(self) -> str:
        return (
            f"PreparedMask(shape={self.shape}, keys={self.start}:{self.stop}, "
            f"blocks={self.blocks!r})"
        )

    __str__ = __repr__
