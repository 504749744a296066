"""Shardings: every position in one part, whatever the lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchyard_attention import and_masks, create_block_mask, masks
from torchyard_context_parallel import Sharding
from torchyard_context_parallel._sharding import in_order, merged, out_of_order

counts = {
    "length": st.integers(0, 200),
    "parts": st.integers(1, 6),
    "multiple": st.sampled_from([1, 3, 16]),
}


@given(**counts)
@pytest.mark.parametrize("build", [Sharding.contiguous, Sharding.head_tail])
def test_every_position_is_in_one_part(
    build: object, length: int, parts: int, multiple: int
) -> None:
    sharding = build(length, parts, multiple=multiple)  # type: ignore[operator]
    positions = [sharding.positions(part) for part in range(parts)]
    assert torch.equal(torch.cat(positions).sort().values, torch.arange(length))
    assert [len(p) for p in positions] == list(sharding.lengths)
    ends = {stop for part in sharding.parts for _, stop in part}
    assert all(end % multiple == 0 or end == length for end in ends)


@given(**counts)
def test_parts_of_head_and_tail_have_about_the_same_work_under_a_causal_mask(
    length: int, parts: int, multiple: int
) -> None:
    sharding = Sharding.head_tail(length, parts, multiple=multiple)
    work = [int((sharding.positions(part) + 1).sum()) for part in range(parts)]
    # Two ranges of each part are each at most a multiple longer than another part's.
    assert max(work) - min(work) <= 4 * multiple * (length + 1)


@given(length=st.integers(0, 300), parts=st.integers(1, 5), seed=st.integers(0, 9))
def test_what_is_taken_apart_is_joined_again(length: int, parts: int, seed: int) -> None:
    ends = torch.arange(17, 400, 17 + seed)
    documents = torch.bucketize(torch.arange(length), ends)
    mask = create_block_mask(
        and_masks(masks.causal, masks.document(documents)), None, None, length, length, "cpu", 16
    )
    whole = torch.randn(2, length, 3)
    for sharding in (Sharding.head_tail(length, parts), Sharding.balanced(mask, parts)):
        pieces = [sharding.take(whole, part, 1) for part in range(parts)]
        assert torch.equal(sharding.join(pieces, 1), whole)
        assert torch.equal(in_order(sharding.parts, pieces, 1), whole)
        back = out_of_order(sharding.parts, whole, 1)
        assert all(torch.equal(a, b) for a, b in zip(back, pieces, strict=True))
        assert merged(sharding.parts) == (((0, length),) if length else ())


def test_balanced_parts_see_about_as_many_blocks_where_documents_differ() -> None:
    length, size = 4096, 64
    documents = torch.cat([torch.zeros(2048), 1 + torch.arange(2048) // 64]).long()
    mask = create_block_mask(
        and_masks(masks.causal, masks.document(documents)), None, None, length, length, "cpu", size
    )
    work = mask.to_dense().sum(dim=(0, 1, 3))

    def of(sharding: Sharding) -> list[int]:
        rows = [sharding.positions(part)[::size] // size for part in range(4)]
        return [int(work[row].sum()) for row in rows]

    balanced, contiguous = of(Sharding.balanced(mask, 4)), of(Sharding.contiguous(length, 4))
    assert max(balanced) - min(balanced) <= 2
    assert max(contiguous) > 5 * max(1, min(contiguous))
    assert set(Sharding.balanced(mask, 4).lengths) == {length // 4}


@pytest.mark.parametrize(
    ("length", "parts", "message"),
    [
        (4, (), "at least one part"),
        (4, (((0, 2),), ((3, 4),)), "each position once, got position 2 in no part"),
        (4, (((0, 3),), ((2, 4),)), "each position once, got position 2 twice"),
        (5, (((0, 4),),), "up to the length 5, got up to 4"),
        (4, (((2, 4), (0, 2)),), r"parts\[0\]: expected ranges \[start, stop\) in ascending"),
        (4, (((0, 4), (4, 4)),), "none of them empty"),
    ],
)
def test_what_is_no_sharding_is_refused(length: int, parts: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sharding(length, parts)  # type: ignore[arg-type]


def test_a_tensor_of_another_length_is_refused() -> None:
    sharding = Sharding.contiguous(10, 3)
    with pytest.raises(ValueError, match=r"whole: expected 10 positions in dimension 1, got shape"):
        sharding.take(torch.zeros(1, 9), 0, 1)
    with pytest.raises(ValueError, match=r"parts\[2\]: expected 4 positions in dimension 0"):
        sharding.join([torch.zeros(3), torch.zeros(3), torch.zeros(3)], 0)
    with pytest.raises(ValueError, match=r"lengths\[\d\]: expected an int of 0"):
        Sharding.of_lengths([3, -1])
    with pytest.raises(ValueError, match="multiple: expected an int of 1 to"):
        Sharding.contiguous(10, 3, multiple=0)


def test_numbers_of_numpy_make_the_same_sharding() -> None:
    plain = Sharding(4, (((0, 2),), ((2, 4),)))
    numbers = Sharding(np.int64(4), ([(np.int64(0), np.int64(2))], [(np.int64(2), np.int64(4))]))  # type: ignore[arg-type]
    assert numbers == plain
    assert numbers.text == plain.text
    assert torch.equal(plain.positions(np.int64(1)), torch.tensor([2, 3]))  # type: ignore[arg-type]


def test_a_part_that_is_not_there_is_refused() -> None:
    sharding = Sharding.contiguous(10, 3)
    for part in (-1, 3):
        with pytest.raises(ValueError, match=r"part: expected an int of 0 to 2, got"):
            sharding.positions(part)
        with pytest.raises(ValueError, match=r"part: expected an int of 0 to 2, got"):
            sharding.take(torch.zeros(10), part, 0)


def test_parts_to_join_are_as_many_as_the_sharding_has_and_of_equal_dimensions() -> None:
    sharding = Sharding.contiguous(4, 2)
    with pytest.raises(ValueError, match=r"parts: expected a list or a tuple of 2, got 1"):
        sharding.join([torch.zeros(2)], 0)
    with pytest.raises(ValueError, match=r"parts\[1\]: expected 1 dimensions, as parts\[0\]"):
        sharding.join([torch.zeros(2), torch.zeros(2, 1)], 0)
