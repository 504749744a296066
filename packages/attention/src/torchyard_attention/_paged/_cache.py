"""PagedKVCache: keys and values of many sequences in pages of one pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._paged._page_book import PageBook
from torchyard_attention._paged._placed_mask import Places, placed_mask
from torchyard_attention._paged._step import Group, PagedStep
from torchyard_attention._paged._tables import page_table, places_in_pages
from torchyard_attention._validation import FLOATS

# The page of a position and its place in the page are int32.
_MOST: Final = (1 << 31) - 1
# More than any machine has, and what sizes that were mixed up ask for.
_MOST_BYTES: Final = 1 << 46


class CacheMemory(NamedTuple):
    """What a PagedKVCache's memory is used for.

    Attributes:
        pages: pages of the pool; a page holds ``page_size`` positions of every layer.
        free: pages that no sequence has.
        shared: pages that several sequences have.
        positions: the positions of all sequences, shared ones counted for each.
        page_bytes: bytes of a page, keys and values of all layers.
        total_bytes: bytes of the pool.
    """

    pages: int
    free: int
    shared: int
    positions: int
    page_bytes: int
    total_bytes: int


class PagedKVCache:
    """Keys and values of many growing sequences, in a fixed number of pages.

    A sequence is a number from :meth:`open`. It takes pages as it grows, and gives them back when
    it is cut or closed; :meth:`fork` makes a second one that shares them until one of the two
    writes. Which pages a sequence has changes no bit of a result.

    In a model of several layers :meth:`extend` makes room once per step, and each layer writes and
    attends through the step that it returns. For one layer there are :meth:`append` and
    :meth:`attention`.

    Args:
        pages: how many pages there are.
        page_size: positions per page, 1 or more. Larger pages are read faster, smaller ones leave
            less room unused: half a page per sequence, in the mean.
        kv_heads: key and value heads, Hkv.
        head_dim: D.
        value_dim: V; None: as head_dim.
        layers: how many layers' keys and values a page holds.
        dtype, device: of the pool. Memory that was never written is not touched on cpu.

    Attributes:
        reclaim: called with how many pages are missing, before a call is refused for that; it may
            close and truncate sequences that the call does not extend. None: nothing is called.
            ``torchyard_cache.PrefixCache`` sets it.

    A layer's keys lie in one tensor [Hkv, pages, page_size, D], its values in one of size V.
    """

    def __init__(
        self,
        pages: int,
        page_size: int = 128,
        *,
        kv_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        layers: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        of = "PagedKVCache"
        pages = arguments.integer(of, "pages", pages, least=1, most=_MOST)
        page_size = arguments.integer(of, "page_size", page_size, least=1, most=_MOST)
        kv_heads = arguments.integer(of, "kv_heads", kv_heads, least=1, most=_MOST)
        head_dim = arguments.integer(of, "head_dim", head_dim, least=1, most=_MOST)
        layers = arguments.integer(of, "layers", layers, least=1, most=_MOST)
        if value_dim is None:
            value_dim = head_dim
        value_dim = arguments.integer(of, "value_dim", value_dim, least=1, most=_MOST)
        dtype = arguments.dtype(of, "dtype", dtype, FLOATS)
        device = arguments.device(of, "device", device)
        bytes_each = dtype.itemsize * kv_heads * page_size * (head_dim + value_dim) * layers
        if pages * bytes_each > _MOST_BYTES:
            raise ValueError(
                f"{of}: pages: expected a pool of at most {_MOST_BYTES >> 40} TiB, got {pages} "
                f"pages of {bytes_each} bytes; a page holds page_size * kv_heads * (head_dim + "
                f"value_dim) * layers values"
            )
        self.reclaim: Callable[[int], None] | None = None
        self._book = PageBook(pages, page_size)
        self._device = device

        def pools(size: int) -> tuple[Tensor, ...]:
            # A head's pages lie together: what one thread reads is one stream where a sequence's
            # pages follow each other, as they do in a new cache.
            shape = (kv_heads, pages, page_size, size)
            zeros = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers))
            return tuple(pool.transpose(0, 1) for pool in zeros)

        self._keys, self._values = pools(head_dim), pools(value_dim)

    def __repr__(self) -> str:
        memory = self.memory
        return (
            f"PagedKVCache({len(self._book.sequences)} sequences, {memory.free} of {memory.pages} "
            f"pages of {self.page_size} free)"
        )

    @property
    def page_size(self) -> int:
        """Positions per page."""
        return self._book.page_size

    @property
    def layers(self) -> int:
        """How many layers' keys and values the cache holds."""
        return len(self._keys)

    @property
    def sequences(self) -> tuple[int, ...]:
        """The sequences that are open."""
        return self._book.sequences

    @property
    def memory(self) -> CacheMemory:
        """What the memory is used for."""
        total = sum(pool.numel() * pool.element_size() for pool in (*self._keys, *self._values))
        pages = self._keys[0].shape[0]
        return CacheMemory(
            pages=pages,
            free=self._book.free,
            shared=self._book.shared,
            positions=sum(self._book.length(sequence) for sequence in self.sequences),
            page_bytes=total // pages,
            total_bytes=total,
        )

    def open(self) -> int:
        """Return a new, empty sequence. Its number is never used again."""
        return self._book.open()

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same positions, which shares its pages.

        The last page, where it is filled in part, is copied when one of the two grows.
        """
        return self._book.fork(_number("fork", sequence))

    def close(self, sequence: int) -> None:
        """Give back the pages of a sequence that no other one shares."""
        self._book.close(_number("close", sequence))

    def truncate(self, sequence: int, length: int) -> None:
        """Cut a sequence to its first ``length`` positions, as after a draft that was rejected."""
        of = "truncate"
        length = arguments.integer(of, "length", length, least=0)
        self._book.truncate(_number(of, sequence), length)

    def length(self, sequence: int) -> int:
        """Return how many positions a sequence has."""
        return self._book.length(_number("length", sequence))

    def extend(self, sequences: int | Sequence[int], counts: int | Sequence[int] = 1) -> PagedStep:
        """Make room for new positions at the ends of sequences: for all, or for none.

        Args:
            sequences: one or more, each once.
            counts: how many new positions, for each or for all alike; 0 or more.

        Returns:
            The step through which each layer writes its keys and values, and attends.

        Raises:
            PagesExhaustedError: too few pages are free. Nothing was changed.
            ValueError: a sequence is not open, or a count is negative.
        """
        numbers, lengths = self._parsed(sequences, counts)
        self._grow(numbers, lengths)
        return self._step(numbers, lengths)

    def step(self, sequences: int | Sequence[int], counts: int | Sequence[int] = 1) -> PagedStep:
        """Return the step of the last positions that sequences have already.

        Raises:
            ValueError: a sequence is not open, or has fewer positions.
        """
        numbers, lengths = self._parsed(sequences, counts)
        for sequence, count in zip(numbers, lengths, strict=True):
            if count > self.length(sequence):
                raise ValueError(
                    f"counts: expected at most {self.length(sequence)}, the positions of sequence "
                    f"{sequence}, got {count}"
                )
        return self._step(numbers, lengths)

    def append(
        self,
        sequences: int | Sequence[int],
        key: Tensor,
        value: Tensor,
        *,
        counts: int | Sequence[int] | None = None,
    ) -> PagedStep:
        """Extend sequences, and write the keys and values of the new positions.

        Args:
            sequences: one or more, each once.
            key: [B, Hkv, S, D], S positions for each of B sequences; or [T, Hkv, D], the positions
                of all sequences one after another.
            value: [B, Hkv, S, V] or [T, Hkv, V].
            counts: how many positions each sequence gets; None: S, or one, or all T where there is
                one sequence.

        Returns:
            The step, to attend with.

        Raises:
            PagesExhaustedError: too few pages are free. Nothing was changed.
            ValueError, TypeError: an argument does not fit. Nothing was changed.
        """
        if self.layers != 1:
            raise ValueError(
                f"append: expected a cache of one layer, got {self.layers}; call extend() once per "
                f"step, and write() of what it returns for each layer"
            )
        for name, new in (("key", key), ("value", value)):
            arguments.tensor("append", name, new, dims=(3, 4))
        numbers = _numbers(sequences)
        if counts is None:
            counts = _counts_of(key, len(numbers))
        numbers, lengths = self._parsed(numbers, counts)
        for name, new, pool in (
            ("key", key, self._keys[0]),
            ("value", value, self._values[0]),
        ):
            PagedStep.check_new(name, new, pool, lengths)
        self._grow(numbers, lengths)
        step = self._step(numbers, lengths)
        step.write(key, value)
        return step

    def attention(
        self,
        query: Tensor,
        sequences: int | Sequence[int],
        *,
        counts: int | Sequence[int] | None = None,
        **how: Any,
    ) -> Any:
        """Compute attention of the last positions of sequences over all keys of each.

        Args:
            query: [B, Hq, S, D], the last S positions of each of B sequences; or [T, Hq, D].
            sequences: one or more, each once.
            counts: how many positions each sequence has in query; None: as for :meth:`append`.
            how: as for :meth:`PagedStep.attention`.
        """
        arguments.tensor("PagedKVCache.attention", "query", query, dims=(3, 4))
        numbers = _numbers(sequences)
        if counts is None:
            counts = _counts_of(query, len(numbers))
        return self.step(numbers, counts).attention(query, **how)

    def keys_and_values(self, sequence: int, *, layer: int = 0) -> tuple[Tensor, Tensor]:
        """Return copies of a sequence's keys [Hkv, length, D] and values [Hkv, length, V]."""
        sequence = _number("keys_and_values", sequence)
        least, most = -self.layers, self.layers - 1
        layer = arguments.integer("keys_and_values", "layer", layer, least=least, most=most)
        length = self.length(sequence)
        pages = torch.tensor(self._book.pages(sequence), dtype=torch.int64, device=self._device)
        key, value = (
            pool[layer][pages].transpose(0, 1).flatten(1, 2)[:, :length]
            for pool in (self._keys, self._values)
        )
        return key, value

    def _parsed(
        self, sequences: int | Sequence[int], counts: int | Sequence[int]
    ) -> tuple[list[int], tuple[int, ...]]:
        numbers = _numbers(sequences)
        self._book.check(numbers)
        if isinstance(counts, (list, tuple, range)):
            lengths = arguments.sequence("PagedKVCache", "counts", counts, _count)
        else:
            lengths = (_count("PagedKVCache", "counts", counts),) * len(numbers)
        if len(lengths) != len(numbers):
            raise ValueError(
                f"counts: expected {len(numbers)} numbers, one per sequence, got {len(lengths)}"
            )
        return numbers, lengths

    def _grow(self, sequences: list[int], counts: tuple[int, ...]) -> None:
        missing = self._book.missing(sequences, counts)
        if missing and self.reclaim is not None:
            self.reclaim(missing)
        copies = self._book.grow(sequences, counts)
        if not copies:
            return
        shared, own = torch.tensor(copies, device=self._device).unbind(1)
        for pool in (*self._keys, *self._values):
            pool[own] = pool[shared]

    def _step(self, sequences: list[int], counts: tuple[int, ...]) -> PagedStep:
        book, changes = self._book, self._book.changes
        ends = [book.length(sequence) for sequence in sequences]
        table = page_table([book.pages(sequence) for sequence in sequences])
        starts = [0]
        for count in counts:
            starts.append(starts[-1] + count)
        page, slot = places_in_pages(table, ends, counts, book.page_size)
        kinds = dict.fromkeys(count for count in counts if count)
        groups = []
        for kind in kinds:
            members = [number for number, count in enumerate(counts) if count == kind]
            rows = None
            if len(members) < len(counts):
                rows = torch.cat([torch.arange(starts[m], starts[m] + kind) for m in members])
            groups.append(self._group(table, ends, kind, members, rows))
        return PagedStep(
            counts=counts,
            page=page.to(self._device),
            slot=slot.to(self._device),
            groups=tuple(groups),
            keys=self._keys,
            values=self._values,
            ended=lambda: book.changes != changes,
        )

    def _group(
        self, table: Tensor, ends: list[int], count: int, members: list[int], rows: Tensor | None
    ) -> Group:
        number = torch.tensor(members)
        lengths = torch.tensor([ends[member] for member in members])
        width = -(-max(ends[member] for member in members) // self.page_size)
        places = Places(
            number=number.to(self._device),
            past=(lengths - count).to(self._device),
            ends=tuple(ends[member] for member in members),
            count=count,
        )
        causal = None
        if count > 1:
            causal = placed_mask(
                places, None, causal=True, heads=1, kv_length=width * self.page_size
            )
        return Group(
            rows=None if rows is None else rows.to(self._device),
            places=places,
            table=table[number, :width].contiguous().to(self._device),
            lengths=lengths.to(torch.int32).to(self._device),
            causal=causal,
        )


def _number(of: str, sequence: object) -> int:
    return arguments.integer(of, "sequence", sequence)


def _numbers(sequences: object) -> list[int]:
    """Return the sequences that one number or several name."""
    if isinstance(sequences, (list, tuple, range)):
        return list(
            arguments.sequence("PagedKVCache", "sequences", sequences, arguments.integer, least=1)
        )
    return [arguments.integer("PagedKVCache", "sequences", sequences)]


def _count(of: str, name: str, value: object) -> int:
    return arguments.integer(of, name, value, least=0, most=_MOST)


def _counts_of(tensor: Tensor, sequences: int) -> int:
    if tensor.ndim == 4:
        return tensor.shape[2]
    return tensor.shape[0] if sequences == 1 else 1
