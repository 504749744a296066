"""Equivalent attention calls have equal results; no reference is needed."""

from __future__ import annotations

from collections.abc import Callable

from torchyard_conformance import law
from torchyard_conformance._attention._trial import trials
from torchyard_conformance._trials._trial import Trial

Record = Callable[[str, float | str], None]


@law(
    "numerics.attention-full-blocks-as-partial",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-full-blocks-as-partial"),
)
def test_full_blocks_may_be_listed_as_partial(case: Trial, record: Record) -> None:
    """A wholly visible block may be listed as a partial one.

    The result, put back, is held to the bounds of the original call.

    Why: who makes a mask decides which blocks it tests for being full; results must not show
    it.

    Fix: full_kv_indices says that no bits need to be read, never that others are not full.
    """
    case.hold(record)


@law(
    "numerics.attention-order-of-blocks",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-order-of-blocks"),
)
def test_blocks_may_be_listed_in_any_order(case: Trial, record: Record) -> None:
    """Blocks of a mask may be listed in any order, with anything in the places behind the last one.

    The result, put back, is held to the bounds of the original call.

    Why: lists come from sorts, merges and users; places behind a row's count are never written.

    Fix: read kv_num_blocks places and no more; take the bits of the j-th listed block, not of
    the j-th key block.
    """
    case.hold(record)


@law(
    "numerics.attention-appended-hidden-keys",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-appended-hidden-keys"),
)
def test_hidden_keys_may_be_appended(case: Trial, record: Record) -> None:
    """Keys that no row sees may be appended.

    The result, put back, is held to the bounds of the original call.

    Why: that is what padding and cache space are.

    Fix: let the mask decide which keys count, not the length of key.
    """
    case.hold(record)


@law(
    "numerics.attention-merged-parts-of-keys",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-merged-parts-of-keys"),
)
def test_parts_of_keys_merge(case: Trial, record: Record) -> None:
    """Attention over parts of the keys, merged by their lse, is attention over all.

    The result, put back, is held to the bounds of the original call.

    Why: split caches, rings of devices and speculative decoding merge by the lse.

    Fix: return the natural logarithm of the sum of exp(score), with the scale in the score; an
    lse in powers of two, or without the greatest score, fails here.
    """
    case.hold(record)


@law(
    "numerics.attention-rows-in-chunks",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-rows-in-chunks"),
)
def test_rows_may_come_in_chunks(case: Trial, record: Record) -> None:
    """Rows may be computed a few at a time.

    The result, put back, is held to the bounds of the original call.

    Why: long prompts are computed in chunks, and tokens one by one.

    Fix: no row's result depends on other rows; look at the last tile of rows, and at kernels
    that are chosen for few rows.
    """
    case.hold(record)


@law(
    "numerics.attention-permuted-heads",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-permuted-heads"),
)
def test_batch_and_heads_may_be_permuted(case: Trial, record: Record) -> None:
    """Batch entries and groups of heads may come in any order.

    The result, put back, is held to the bounds of the original call.

    Why: a wrong stride or head map is often right for the first head and the first entry.

    Fix: query head h reads key head h // (Hq / Hkv); strides are those of the tensors, not of
    their shapes.
    """
    case.hold(record)


@law(
    "numerics.attention-shared-heads",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-shared-heads"),
)
def test_shared_heads_may_be_written_out(case: Trial, record: Record) -> None:
    """A key head that several query heads share may be written out for each.

    The result, put back, is held to the bounds of the original call.

    Why: models are converted between the two forms.

    Fix: heads that share a key head are neighbours: h // G, not h % Hkv.
    """
    case.hold(record)


@law(
    "numerics.attention-scaled-values",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-scaled-values"),
)
def test_values_scale(case: Trial, record: Record) -> None:
    """Values that are four times as large give an out that is, and the same lse.

    The result, put back, is held to the bounds of the original call.

    Why: out is linear in value; whatever breaks that has mixed values into the weights.

    Fix: keep value out of scores and sums of weights; look for narrow accumulators that
    saturate.
    """
    case.hold(record)


@law(
    "numerics.attention-pages-anywhere",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-pages-anywhere"),
)
def test_pages_may_lie_anywhere(case: Trial, record: Record) -> None:
    """Pages of a cache may lie anywhere, between pages that hold NaN.

    The result, put back, is held to the bounds of the original call. An implementation whose
    forward does not say reads_pages is given gathered keys, and is not judged.

    Why: pages are handed out in the order in which others give them back.

    Fix: find key k of batch entry b at key[table[b, k // page], :, k % page], and read no page
    that the table does not name within the length.
    """
    case.hold(record)
