"""PagedKVCache held against plain lists of rows, by random sequences of calls."""

from __future__ import annotations

import math
from collections import Counter

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from torchyard_attention import PagesExhaustedError

from .paged import DIM, HEADS, close, contiguous, empty_cache, tokens


class Sequences(RuleBasedStateMachine):
    """Opens, appends, forks, truncates and closes at random, beside lists of rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows: dict[int, list[tuple[Tensor, Tensor]]] = {}

    @initialize(pages=st.integers(2, 12), page_size=st.sampled_from([1, 3, 16]))
    def make(self, pages: int, page_size: int) -> None:
        self.pages = pages
        self.cache = empty_cache(pages, page_size)
        for pool in (*self.cache._keys, *self.cache._values):
            pool.fill_(math.nan)

    def some(self, data: st.DataObject) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(self.rows)), unique=True, min_size=1))

    @rule()
    def open(self) -> None:
        sequence = self.cache.open()
        assert sequence not in self.rows
        self.rows[sequence] = []

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        chosen = self.some(data)
        self.grow(chosen, [data.draw(st.integers(0, 9)) for _ in chosen])

    @precondition(lambda self: self.rows)
    @rule(count=st.integers(1, 3))
    def append_to_all(self, count: int) -> None:
        # Forks that write to the page that they share.
        self.grow(sorted(self.rows), [count] * len(self.rows))

    def grow(self, chosen: list[int], counts: list[int]) -> None:
        key, value = tokens(sum(counts))
        before = self.cache.memory
        try:
            self.cache.append(chosen, key, value, counts=counts)
        except PagesExhaustedError:
            assert self.cache.memory == before, "half appended"
            return
        new = list(zip(key, value, strict=True))
        for sequence, count in zip(chosen, counts, strict=True):
            self.rows[sequence] += new[:count]
            del new[:count]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.rows)))
        self.rows[self.cache.fork(sequence)] = list(self.rows[sequence])

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.rows)))
        length = data.draw(st.integers(0, len(self.rows[sequence])))
        self.cache.truncate(sequence, length)
        del self.rows[sequence][length:]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.rows)))
        self.cache.close(sequence)
        del self.rows[sequence]

    @precondition(lambda self: any(self.rows.values()))
    @rule(data=st.data())
    def attend(self, data: st.DataObject) -> None:
        chosen = [sequence for sequence in self.some(data) if self.rows[sequence]]
        if not chosen:
            return
        counts = [data.draw(st.integers(1, min(5, len(self.rows[one])))) for one in chosen]
        query = torch.randn(sum(counts), HEADS, DIM)
        out = self.cache.attention(query, chosen, counts=counts)
        for sequence, rows, got in zip(chosen, query.split(counts), out.split(counts), strict=True):
            close(got, contiguous(self.cache, sequence, rows))

    @invariant()
    def holds_what_was_written(self) -> None:
        for sequence, rows in self.rows.items():
            assert self.cache.length(sequence) == len(rows)
            key, value = self.cache.keys_and_values(sequence)
            assert all(torch.equal(key[:, i], row[0]) for i, row in enumerate(rows))
            assert all(torch.equal(value[:, i], row[1]) for i, row in enumerate(rows))

    @invariant()
    def counts_every_page(self) -> None:
        if not hasattr(self, "cache"):
            return
        book, size = self.cache._book, self.cache.page_size
        pages = {sequence: book.pages(sequence) for sequence in self.rows}
        assert {one: len(some) for one, some in pages.items()} == {
            one: -(-len(rows) // size) for one, rows in self.rows.items()
        }
        users = Counter(page for some in pages.values() for page in some)
        memory = self.cache.memory
        assert memory.pages - memory.free == len(users)
        assert memory.shared == sum(count > 1 for count in users.values())
        assert memory.positions == sum(map(len, self.rows.values()))


Sequences.TestCase.settings = settings(max_examples=50, stateful_step_count=25)
TestSequences = Sequences.TestCase
