"""Kernels: values that are not finite, repeated calls, and uninitialised memory."""

from __future__ import annotations

from collections.abc import Callable

from torchyard_conformance import law
from torchyard_conformance._kernels._trial import trials
from torchyard_conformance._trials._trial import Trial

Record = Callable[[str, float | str], None]


@law(
    "numerics.topk-equal-elements",
    profiles=("kernels", "smoke"),
    cases=trials("numerics.topk-equal-elements"),
)
def test_equal_elements_are_ordered_by_their_indices(case: Trial, record: Record) -> None:
    """Of equal elements the one with the lowest index comes first, zeros of both signs included.

    Rows hold five numbers only; values and indices must be the reference's.

    Why: the order is total so that every device and every number of threads gives the same
    answer; sampling and routing by indices rests on it.

    Fix: compare by (value, index), and keep a zero's sign in the values.
    """
    case.hold(record)


@law(
    "numerics.kernels-not-finite",
    profiles=("kernels", "smoke"),
    cases=trials("numerics.kernels-not-finite"),
)
def test_what_is_not_finite_goes_where_it_belongs(case: Trial, record: Record) -> None:
    """NaN and infinities are in the results where the reference has them, and nowhere else.

    In a selection NaN is the greatest. Of a product, a row of x or an output's weights are not
    finite; of a function over lists, some elements are. Everything else stays within its bound.

    Why: a NaN that spreads spoils a whole batch for one bad request, and one that is lost hides
    that a training diverged.

    Fix: order NaN explicitly; do not multiply what is not there by 0; leave out the compiler's
    flags for finite numbers.
    """
    case.hold(record)


@law(
    "numerics.kernels-fresh-memory",
    profiles=("kernels", "smoke"),
    cases=trials("numerics.kernels-fresh-memory"),
)
def test_fresh_memory_is_not_read(case: Trial, record: Record) -> None:
    """Results do not depend on what memory held before.

    Memory is filled with NaN before a call gets it.

    Why: what reads memory that it did not write is right in tests and wrong in long runs.

    Fix: write every element of an output and of scratch memory before it is read, those of
    padding too.
    """
    case.hold(record)


@law(
    "numerics.kernels-deterministic",
    profiles=("kernels", "smoke"),
    cases=trials("numerics.kernels-deterministic"),
)
def test_the_claim_of_determinism_holds(case: Trial, record: Record) -> None:
    """Where it claims to be deterministic, bits depend on no run and no number of threads.

    Calls are repeated with 1, 2, 3 and 5 threads. An implementation that claims nothing is not
    judged.

    Why: users choose an implementation for evaluation or for a debugging session by this claim.

    Fix: cut work by sizes and never by the number of threads, and add partial sums in the
    order of their places; or do not claim it.
    """
    case.hold(record)


@law(
    "numerics.kernels-batch-invariant",
    profiles=("kernels", "smoke"),
    cases=trials("numerics.kernels-batch-invariant"),
)
def test_the_claim_of_batch_invariance_holds(case: Trial, record: Record) -> None:
    """Where it claims to be batch-invariant, a row's bits do not depend on its companions.

    The first and the last row are computed alone, and all in the opposite order. An
    implementation that claims nothing is not judged.

    Why: a server that batches requests would otherwise answer the same question differently.

    Fix: choose tiles and splits from a row's own sizes, not from how many there are; or do not
    claim it.
    """
    case.hold(record)


@law(
    "numerics.recurrent-padding",
    profiles=("kernels", "smoke"),
    cases=trials("numerics.recurrent-padding"),
)
def test_padding_reaches_no_result(case: Trial, record: Record) -> None:
    """Elements past a sequence's length reach no result and no gradient.

    It is NaN there; outputs there are 0, states are those of the last step that there is, and so
    are gradients.

    Why: padding holds whatever the batch before left in it.

    Fix: choose by the length, do not multiply by 0; the second direction starts at each
    sequence's own last step.
    """
    case.hold(record)
