"""Attention: NaN, infinities, empty rows, and memory that was never written."""

from __future__ import annotations

from collections.abc import Callable

from torchyard_conformance import law
from torchyard_conformance._attention._trial import trials
from torchyard_conformance._trials._trial import Trial

Record = Callable[[str, float | str], None]


@law(
    "numerics.attention-masked-nan-stays-out",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-masked-nan-stays-out"),
)
def test_masked_nan_stays_out(case: Trial, record: Record) -> None:
    """NaN and infinities in keys and values that a row does not see do not reach it.

    Keys that nobody sees, and one that only some rows see, are filled with NaN, inf and -inf,
    in key and in value; the rows that do not see them stay within their bounds.

    Why: padding and unused cache places hold whatever was there before.

    Fix: 0 * NaN is NaN: take hidden keys out of the product with a select, not by adding -inf
    to the score or by a weight of 0.
    """
    case.hold(record)


@law(
    "numerics.attention-seen-nan-is-shown",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-seen-nan-is-shown"),
)
def test_seen_nan_is_shown(case: Trial, record: Record) -> None:
    """A value that is NaN makes every row that sees it NaN.

    Why: a NaN that disappears hides the bug that made it.

    Fix: do not clean values with nan_to_num or min and max; select by the mask alone.
    """
    case.hold(record)


@law(
    "numerics.attention-masked-nan-in-gradients",
    profiles=("attention-full", "smoke"),
    cases=trials("numerics.attention-masked-nan-in-gradients"),
)
def test_masked_nan_stays_out_of_gradients(case: Trial, record: Record) -> None:
    """NaN and infinities in keys and values that no row sees do not reach any gradient.

    Why: one padded batch would end a training run.

    Fix: select hidden keys out before the products, as in the forward; their own gradients are
    0.
    """
    case.hold(record)


@law(
    "numerics.attention-bad-row-stays-alone",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-bad-row-stays-alone"),
)
def test_a_bad_row_stays_alone(case: Trial, record: Record) -> None:
    """A row that holds NaN reaches no other row, and no gradient of a key that it does not see.

    One row of query, and every row that sees nothing, is filled with NaN, in the backward with
    its out, lse and their gradients.

    Why: padding rows hold anything, and one bad document of a packed batch would spoil all
    others.

    Fix: in the backward, select hidden pairs out of weights and slopes, and rows that are not
    finite out of the products that sum over rows, as 0 * NaN is NaN.
    """
    case.hold(record)


@law(
    "numerics.attention-empty-rows",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-empty-rows"),
)
def test_empty_rows_are_empty(case: Trial, record: Record) -> None:
    """A row that sees no key has out 0, lse -inf, max_scores -inf and a gradient of 0.

    Why: the softmax of nothing is 0 / 0; torch and the contract agree on 0.

    Fix: treat a greatest score of -inf before subtracting it, and a sum of 0 before dividing
    by it; in the backward, give weights of 0 where lse is -inf.
    """
    case.hold(record)


@law(
    "numerics.attention-fresh-memory",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-fresh-memory"),
)
def test_results_do_not_depend_on_fresh_memory(case: Trial, record: Record) -> None:
    """Results do not depend on what was in memory before.

    torch fills what it allocates with NaN, and memory that a library may be given next is
    filled with NaN and freed.

    Why: scratch memory that is read before it is written is right in tests, where it is fresh
    from the system and 0, and wrong in servers.

    Fix: write every element of outputs and scratch memory that is read, also for empty rows
    and beyond the last key of a tile.
    """
    case.hold(record)


@law(
    "numerics.attention-calls-at-once",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-calls-at-once"),
)
def test_calls_at_once_do_not_meet(case: Trial, record: Record) -> None:
    """Calls from several threads at once get their own results.

    Why: servers and data loaders call from threads; torch releases the interpreter's lock
    inside of kernels.

    Fix: keep scratch memory per call or per thread, not per implementation.
    """
    case.hold(record)


@law(
    "numerics.attention-gradcheck",
    profiles=("attention-full", "smoke"),
    cases=trials("numerics.attention-gradcheck"),
)
def test_gradients_are_those_of_differences(case: Trial, record: Record) -> None:
    """Where float64 is accepted, gradients agree with differences of outputs.

    torch.autograd.gradcheck on calls with masks, groups of heads, value sizes of their own and
    captured tensors; outputs are the plugin's own where its forward accepts float64.

    Why: it is the one check that does not trust the reference's formulas.

    Fix: look at the input that it names; an error in all of them is usually the softmax's own
    term, grad_out . out.
    """
    case.hold(record)
