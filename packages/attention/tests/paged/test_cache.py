"""PagedKVCache: what it holds, how it attends, what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard import UnsupportedError
from torchyard_attention import (
    AuxRequest,
    PagesExhaustedError,
    create_block_mask,
    flex_attention,
    masks,
)
from torchyard_attention._paged._op import flattened

from .paged import DIM, HEADS, KV_HEADS, VALUE_DIM, close, contiguous, empty_cache, filled, tokens


@pytest.mark.parametrize("implementation", [None, "attention.tiled", "attention.reference"])
@pytest.mark.parametrize("page_size", [1, 3, 16, 128])
def test_chunks_and_single_tokens_attend_together(
    implementation: str | None, page_size: int
) -> None:
    cache, sequences = filled(40, 7, 33, 40, page_size=page_size)
    counts = [12, 1, 0, 12]
    query = torch.randn(sum(counts), HEADS, DIM)
    step = cache.step(sequences, counts)
    out, aux = step.attention(query, return_aux=AuxRequest(lse=True), implementation=implementation)
    assert aux.max_scores is None
    for sequence, rows, got, lse in zip(
        sequences, query.split(counts), out.split(counts), aux.lse.split(counts), strict=True
    ):
        if len(rows):
            close(got, contiguous(cache, sequence, rows))
            key, _ = cache.keys_and_values(sequence)
            scores = rows[-1].view(KV_HEADS, -1, DIM) @ key.mT / math.sqrt(DIM)
            close(lse[-1], scores.logsumexp(-1).flatten())


def test_indices_are_positions_in_the_sequence() -> None:
    cache, sequences = filled(40, 25, 40)
    counts = [6, 1, 6]
    query = torch.randn(sum(counts), HEADS, DIM)
    table = torch.randn(40)

    def score_mod(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return s - 0.1 * (h + 1) * (q - k) + table[q] * table[k]

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q - k < 9) | (k % (h + 2) == 0)

    for how in (
        {"score_mod": score_mod},
        {"mask_mod": mask_mod},
        {"mask_mod": masks.sliding_window(7)},
        {"mask_mod": masks.document(torch.arange(40) // 15), "score_mod": score_mod},
    ):
        out = cache.attention(query, sequences, counts=counts, **how)
        for sequence, rows, got in zip(
            sequences, query.split(counts), out.split(counts), strict=True
        ):
            close(got, contiguous(cache, sequence, rows, **how))


def test_a_function_of_the_sequence_gets_its_number_in_the_step() -> None:
    cache, sequences = filled(20, 30, 20)
    query = torch.randn(12, HEADS, DIM)
    weights = torch.randn(3)
    groups = torch.arange(3)[:, None] + torch.arange(30) // 9
    out = cache.attention(
        query,
        sequences,
        counts=[2, 8, 2],
        score_mod=lambda s, b, h, q, k: s * weights[b],
        mask_mod=masks.document(groups),
    )
    for number, (rows, got) in enumerate(
        zip(query.split([2, 8, 2]), out.split([2, 8, 2]), strict=True)
    ):
        close(
            got,
            contiguous(
                cache,
                sequences[number],
                rows,
                score_mod=lambda s, b, h, q, k, number=number: s * weights[number],
                mask_mod=lambda b, h, q, k, number=number: groups[number][q] == groups[number][k],
            ),
        )


def test_without_causal_every_query_sees_all_keys_of_its_sequence() -> None:
    cache, sequences = filled(20, 30)
    query = torch.randn(2, HEADS, 4, DIM)
    out = cache.attention(query, sequences, causal=False)
    window = cache.attention(
        query, sequences, causal=False, mask_mod=masks.sliding_window(3, ahead=2)
    )
    for number, sequence in enumerate(sequences):
        key, value = cache.keys_and_values(sequence)
        one = query[number : number + 1]
        close(out[number], flex_attention(one, key[None], value[None], enable_gqa=True)[0])
        past = key.shape[1] - 4
        mask = create_block_mask(
            lambda b, h, q, k, past=past: (q + past - k < 3) & (k - q - past <= 2),
            None,
            None,
            4,
            key.shape[1],
            device="cpu",
        )
        expected = flex_attention(one, key[None], value[None], None, mask, enable_gqa=True)
        close(window[number], expected[0])


def test_a_fork_shares_pages_until_it_writes() -> None:
    cache, (sequence,) = filled(40)
    fork = cache.fork(sequence)
    assert cache.memory[:3] == (64, 61, 3)
    key, value = tokens(2)
    cache.append([sequence, fork], key, value)
    assert cache.memory[:3] == (64, 60, 2), (
        "one of the two copies the last page, the other keeps it"
    )
    assert torch.equal(cache.keys_and_values(sequence)[0][:, 40], key[0])
    assert torch.equal(cache.keys_and_values(fork)[0][:, 40], key[1])
    cache.close(sequence)
    cache.close(fork)
    assert cache.memory.free == 64
    assert cache.sequences == ()


def test_exhaustion_names_what_is_needed_and_changes_nothing() -> None:
    cache = empty_cache(pages=4)
    first, second = cache.open(), cache.open()
    cache.append(first, *tokens(20))
    before = cache.memory
    text = (
        r"expected 3 free pages for 33 keys of 2 sequences, got 2 of 4 pages of 16 keys; close\(\) "
        r"or truncate\(\) sequences, or make the cache with more pages"
    )
    with pytest.raises(PagesExhaustedError, match=text):
        cache.append([first, second], *tokens(33), counts=[0, 33])
    assert cache.memory == before
    cache.append([first, second], *tokens(44), counts=[12, 32])
    assert cache.memory.free == 0
    fork = cache.fork(first)
    with pytest.raises(PagesExhaustedError, match="expected 1 free pages for 1 keys"):
        cache.append(fork, *tokens(1))
    cache.truncate(second, 16)
    cache.truncate(fork, 31)
    cache.append(fork, *tokens(1))
    assert cache.length(fork) == 32


def test_layers_write_and_attend_through_one_step() -> None:
    torch.manual_seed(0)
    cache = empty_cache(layers=3)
    sequences = [cache.open(), cache.open()]
    written: list[list[tuple[Tensor, Tensor]]] = [[], [], []]
    for counts in ([20, 3], [1, 1]):
        step = cache.extend(sequences, counts)
        for layer in range(3):
            written[layer].append(tokens(sum(counts)))
            step.write(*written[layer][-1], layer=layer)
    query = torch.randn(2, HEADS, 1, DIM)
    for layer in range(3):
        (first, _), (last, _) = written[layer]
        key = cache.keys_and_values(sequences[1], layer=layer)[0]
        assert torch.equal(key, torch.cat([first[20:], last[1:]]).transpose(0, 1))
        fork = cache.fork(sequences[0])
        step = cache.step([fork, sequences[1]])
        out = step.attention(query, layer=layer)
        key, value = cache.keys_and_values(fork, layer=layer)
        close(out[0], flex_attention(query[:1], key[None], value[None], enable_gqa=True)[0])
    with pytest.raises(ValueError, match="append: expected a cache of one layer, got 3"):
        cache.append(sequences, *tokens(2))


def test_a_step_ends_with_the_next_change_of_the_cache() -> None:
    cache, sequences = filled(20, 30)
    query = torch.randn(2, HEADS, 1, DIM)
    for change in (cache.open, lambda: cache.fork(sequences[0]), lambda: cache.extend(sequences)):
        step = cache.step(sequences)
        step.attention(query)
        change()
        with pytest.raises(ValueError, match="expected the cache's newest step"):
            step.attention(query)
        with pytest.raises(ValueError, match="expected the cache's newest step"):
            step.write(*tokens(2))


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        (
            {"query": torch.zeros(2, 4, DIM)},
            ValueError,
            r"query: expected \[3, H, D\] or \[3, H, 1",
        ),
        ({"query": torch.zeros(3, 3, DIM)}, ValueError, "multiple of the cache's 2 heads, got 3"),
        ({"query": torch.zeros(3, 4, 8)}, ValueError, "query: expected head size 16, got 8"),
        (
            {"query": torch.zeros(3, 4, DIM).double()},
            TypeError,
            "query: expected the cache's dtype",
        ),
        ({"query": torch.zeros(3, 4, DIM, requires_grad=True)}, ValueError, "torch.no_grad"),
        ({"layer": 1}, ValueError, "layer: expected an int of 0 to 0, got 1"),
        ({"implementation": "attention.sdpa"}, UnsupportedError, "attention.sdpa       refused"),
    ],
)
def test_what_does_not_fit_a_step_is_named(
    how: dict[str, Any], error: type[Exception], text: str
) -> None:
    cache, sequences = filled(5, 6, 7)
    step = cache.step(sequences)
    with pytest.raises(error, match=text):
        step.attention(**({"query": torch.zeros(3, 4, DIM)} | how))


def test_sdpa_computes_one_sequence_and_says_why_not_several() -> None:
    cache = empty_cache(value_dim=DIM)
    sequences = [cache.open(), cache.open()]
    key = torch.randn(24, KV_HEADS, DIM)
    cache.append(sequences, key, key, counts=[20, 4])
    query = torch.randn(2, HEADS, DIM)
    step = cache.step(sequences)
    with pytest.raises(UnsupportedError, match="knows one length for all keys, got pages of 2"):
        step.attention(query, implementation="attention.sdpa")
    one = cache.step(sequences[0])
    text = one.explain(query[:1], implementation="attention.sdpa")[0].render()
    assert "after gathering the cache's pages" in text
    close(
        one.attention(query[:1], implementation="attention.sdpa"),
        contiguous(cache, sequences[0], query[:1]),
    )


@pytest.mark.parametrize("argument", ["key", "value"])
@pytest.mark.parametrize("left", [0, 4])
def test_positions_without_memory_are_refused_and_nothing_grows(argument: str, left: int) -> None:
    cache, _ = filled(5)
    given = dict(zip(("key", "value"), tokens(1), strict=True))
    given[argument] = given[argument].clone()
    given[argument].untyped_storage().resize_(left)
    with pytest.raises(ValueError, match=f"append: {argument}: expected .* bytes of storage"):
        cache.append(0, **given)
    assert cache.length(0) == 5
    step = cache.extend(0)
    with pytest.raises(ValueError, match=f"{argument}: expected .* bytes of storage"):
        step.write(**given)


def test_what_does_not_fit_the_cache_is_named() -> None:
    cache, sequences = filled(5, 6, 7)
    key, value = tokens(3)
    before = cache.memory
    for error, text, call in (
        (ValueError, "got 9, which was never opened", lambda: cache.length(9)),
        (ValueError, "expected each once", lambda: cache.extend([0, 0])),
        (
            ValueError,
            "sequences: expected a list or a tuple of at least 1",
            lambda: cache.extend([]),
        ),
        (ValueError, "counts: expected 3 numbers, one per", lambda: cache.extend(sequences, [1])),
        (
            ValueError,
            "counts: expected an int of 0 to 2147483647, got -1",
            lambda: cache.extend(0, -1),
        ),
        (ValueError, "counts: expected at most 5, the posi", lambda: cache.step(sequences, 6)),
        (ValueError, "length: expected 0 to 5", lambda: cache.truncate(0, 6)),
        (ValueError, r"key: expected \[3, H, D\]", lambda: cache.append(sequences, key[:2], value)),
        (ValueError, "value: expected 2 heads", lambda: cache.append(sequences, key, key)),
        (TypeError, "key: expected the", lambda: cache.append(sequences, key.double(), value)),
        (
            ValueError,
            "key: expected a tensor without gradient",
            lambda: cache.append(sequences, key.clone().requires_grad_(), value),
        ),
        (ValueError, "pages: expected an int of 1 to", lambda: empty_cache(pages=0)),
        (ValueError, "page_size: expected an int of 1 to", lambda: empty_cache(page_size=0)),
    ):
        with pytest.raises(error, match=text):
            call()
    assert cache.memory == before


def test_a_decoding_step_compiles_whole_and_seldom() -> None:
    torch.manual_seed(0)
    cache, sequences = filled(10, 14)
    weight = torch.randn(DIM, (HEADS + KV_HEADS) * DIM + KV_HEADS * VALUE_DIM)
    graphs = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    def decode(step: Any, x: Tensor) -> Any:
        sizes = [HEADS * DIM, KV_HEADS * DIM, KV_HEADS * VALUE_DIM]
        query, key, value = (
            part.unflatten(1, (-1, size))
            for part, size in zip((x @ weight).split(sizes, 1), (DIM, DIM, VALUE_DIM), strict=True)
        )
        step.write(key, value)
        return step.attention(query)

    compiled = torch.compile(decode, fullgraph=True, backend=count)
    for _ in range(30):
        step = cache.extend(sequences)
        x = torch.randn(2, DIM)
        assert torch.equal(compiled(step, x), decode(step, x))
    assert len(graphs) <= 2, "a graph for the first width of the table, and one for all others"


def test_the_op_is_sound() -> None:
    cache, sequences = filled(5, 20)
    step = cache.step(sequences, 3)
    group = step.groups[0]
    query = torch.randn(2, HEADS, 3, DIM)
    call = step._call(query, group, 0, None, None, True, None, AuxRequest(lse=True), ())
    torch.library.opcheck(
        torch.ops.torchyard_attention.paged_forward.default,
        (*flattened(call), ""),
        test_utils=("test_schema", "test_faketensor"),
    )
